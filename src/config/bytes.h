#pragma once
// Numbers of bytes as people write them: "512MiB", "8GB", "123456".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slimpipe::config {

/// Nothing where the text is no number of bytes or does not fit; parse_bytes() of load.h throws instead.
[[nodiscard]] std::optional<std::int64_t> bytes_from_text(std::string_view text);
/// With the largest binary unit that divides the number: 1536 MiB is "1536MiB".
[[nodiscard]] std::string bytes_to_text(std::int64_t bytes);

}  // namespace slimpipe::config
