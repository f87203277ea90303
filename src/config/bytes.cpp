#include "config/bytes.h"

#include <array>
#include <charconv>
#include <fmt/core.h>
#include <limits>

#include "slimpipe/config/load.h"
#include "slimpipe/core/check.h"

namespace slimpipe::config {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

// Descending, so that the first one that divides a number is the largest.
constexpr std::array kBinaryUnits = {Unit{"TiB", std::int64_t{1} << 40}, Unit{"GiB", std::int64_t{1} << 30},
                                     Unit{"MiB", std::int64_t{1} << 20}, Unit{"KiB", std::int64_t{1} << 10}};
constexpr std::array kDecimalUnits = {Unit{"TB", 1'000'000'000'000}, Unit{"GB", 1'000'000'000},
                                      Unit{"MB", 1'000'000}, Unit{"kB", 1'000}};

std::optional<std::int64_t> unit_from_name(std::string_view name) {
  if (name.empty() || name == "B") return 1;
  for (const Unit& unit : kBinaryUnits)
    if (unit.name == name) return unit.bytes;
  for (const Unit& unit : kDecimalUnits)
    if (unit.name == name) return unit.bytes;
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> bytes_from_text(std::string_view text) {
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || count < 0 || text.front() == '-') return std::nullopt;
  std::string_view name(rest, static_cast<std::size_t>(end - rest));
  if (name.starts_with(' ')) name.remove_prefix(1);
  const std::optional<std::int64_t> unit = unit_from_name(name);
  if (!unit || (name.empty() && rest != end)) return std::nullopt;
  if (count > std::numeric_limits<std::int64_t>::max() / *unit) return std::nullopt;
  return count * *unit;
}

std::string bytes_to_text(std::int64_t bytes) {
  for (const Unit& unit : kBinaryUnits)
    if (bytes != 0 && bytes % unit.bytes == 0) return fmt::format("{}{}", bytes / unit.bytes, unit.name);
  return fmt::format("{}", bytes);
}

std::int64_t parse_bytes(std::string_view text) {
  const std::optional<std::int64_t> bytes = bytes_from_text(text);
  if (!bytes)
    throw_input_error(
        "\"{}\" is no number of bytes: expected digits and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB; "
        "none: bytes), such as 512MiB, below 8 EiB",
        text);
  return *bytes;
}

}  // namespace slimpipe::config
