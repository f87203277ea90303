#pragma once
// The known key that an unknown one was probably meant to be.

#include <cstddef>
#include <string>
#include <string_view>

namespace slimpipe::config {

/// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// "; did you mean schedule.slices?", or empty where nothing is near. The right name in the wrong section
/// counts as near.
[[nodiscard]] std::string suggestion_for_key(std::string_view unknown);

}  // namespace slimpipe::config
