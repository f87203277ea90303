#pragma once
// Text from outside: whether it is clean UTF-8, and how it is quoted in a message.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace slimpipe::config {

struct Defect {
  std::size_t offset = 0;  ///< bytes from the start of the text
  std::string what;        ///< "a byte that is not UTF-8 (0xff)"
};

/// The first byte that is no UTF-8 or a control character other than tab, line feed, carriage return.
[[nodiscard]] std::optional<Defect> first_defect(std::string_view text);
/// 1-based line of a place in a text.
[[nodiscard]] int line_of(std::string_view text, std::size_t offset);
/// Fit for one line of a terminal: control characters and stray bytes become \xNN; cut after `max_bytes`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = 60);

}  // namespace slimpipe::config
