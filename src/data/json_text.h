#pragma once
// The one field of a JSON line that holds its text.

#include <string>
#include <string_view>

namespace slimpipe::data {

/// The string under `key` of the object `line`, which must be there once. Everything else in
/// the line is checked and dropped as it is read, so that a line costs its text and no tree. Throws
/// InputError saying what is wrong with the line, without its place.
[[nodiscard]] std::string json_text(std::string_view line, std::string_view key);

}  // namespace slimpipe::data
