#include "config/domain.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "config/bytes.h"
#include "config/source_text.h"

namespace slimpipe::config {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The whole text as one number, in decimal: no sign '+', no spaces, no suffix, nothing out of the type.
template <typename Number>
std::optional<Number> number_from_text(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

std::optional<Value> parse_in(const Flags&, std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::optional<Value> parse_in(const Integers& range, std::string_view text) {
  const auto number = number_from_text<std::int64_t>(text);
  if (!number || *number < range.low || *number > range.high) return std::nullopt;
  return *number;
}

std::optional<Value> parse_in(const Unsigned&, std::string_view text) {
  const auto number = number_from_text<std::uint64_t>(text);
  if (!number) return std::nullopt;
  return *number;
}

std::optional<Value> parse_in(const Numbers& range, std::string_view text) {
  const auto number = number_from_text<double>(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  if (*number != 0 && std::abs(*number) < kLeastNumber) return std::nullopt;
  if (*number < range.low || (range.low_open && *number == range.low)) return std::nullopt;
  if (*number > range.high || (range.high_open && *number == range.high)) return std::nullopt;
  return *number + 0.0;  // -0 becomes 0
}

std::optional<Value> parse_in(const Bytes&, std::string_view text) {
  const auto bytes = bytes_from_text(text);
  if (!bytes) return std::nullopt;
  return *bytes;
}

std::optional<Value> parse_in(const Text&, std::string_view text) {
  const bool one_line = text.find_first_of("\n\r\t") == std::string_view::npos;
  if (!one_line || first_defect(text)) return std::nullopt;
  return std::string(text);
}

std::optional<Value> parse_in(const Choices& choices, std::string_view text) {
  if (std::find(choices.names.begin(), choices.names.end(), text) == choices.names.end()) return std::nullopt;
  return std::string(text);
}

std::string allowed_in(const Flags&) {
  return "true, false";
}

/// Bounds that are only there against overflow are powers of two: "2^40" reads better than its digits.
std::string bound_text(std::int64_t bound) {
  constexpr std::int64_t kLeastPower = 1 << 20;
  const auto bits = static_cast<std::uint64_t>(bound);
  if (bound >= kLeastPower && std::has_single_bit(bits)) return fmt::format("2^{}", std::countr_zero(bits));
  return fmt::format("{}", bound);
}

std::string allowed_in(const Integers& range) {
  if (range.high == kNoLimit) return fmt::format(">= {}", range.low);
  return fmt::format("{} to {}", range.low, bound_text(range.high));
}

std::string allowed_in(const Unsigned&) {
  return fmt::format("0 to {}", std::numeric_limits<std::uint64_t>::max());
}

std::string allowed_in(const Numbers& range) {
  return fmt::format("{} {} and {} {}", range.low_open ? ">" : ">=", range.low,
                     range.high_open ? "<" : "<=", range.high);
}

std::string allowed_in(const Bytes&) {
  return "digits and B, kB, MB, GB, TB, KiB, MiB, GiB, TiB or nothing";
}
std::string allowed_in(const Text&) {
  return "one line";
}

std::string allowed_in(const Choices& choices) {
  std::vector<std::string> names = choices.names;
  std::erase(names, "");  // "none of them": allowed, but nothing to read
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string expectation_in(const Flags&) {
  return "true or false";
}

std::string expectation_in(const Integers& range) {
  return fmt::format("an integer {}{}", range.high == kNoLimit ? "" : "from ", allowed_in(range));
}

std::string expectation_in(const Unsigned& all) {
  return "an integer from " + allowed_in(all);
}
std::string expectation_in(const Numbers& range) {
  return "a number " + allowed_in(range);
}
std::string expectation_in(const Bytes&) {
  return "a number of bytes such as 512MiB, 8GB or 123456";
}
std::string expectation_in(const Text&) {
  return "one line of text";
}
std::string expectation_in(const Choices& choices) {
  if (choices.names.size() == 1) return choices.names.front();
  return "one of " + allowed_in(choices);
}

struct TypeName {
  std::string_view operator()(const Flags&) const { return "true/false"; }
  std::string_view operator()(const Integers&) const { return "integer"; }
  std::string_view operator()(const Unsigned&) const { return "integer"; }
  std::string_view operator()(const Numbers&) const { return "number"; }
  std::string_view operator()(const Bytes&) const { return "bytes"; }
  std::string_view operator()(const Text&) const { return "text"; }
  std::string_view operator()(const Choices&) const { return "choice"; }
};

}  // namespace

std::optional<Value> parse(const Domain& domain, std::string_view text) {
  return std::visit([text](const auto& values) { return parse_in(values, text); }, domain);
}

std::string format(const Domain& domain, const Value& value) {
  if (std::holds_alternative<Bytes>(domain)) return bytes_to_text(std::get<std::int64_t>(value));
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

std::string expectation(const Domain& domain) {
  return std::visit([](const auto& values) { return expectation_in(values); }, domain);
}

std::string remark(const Domain& domain, std::string_view text) {
  if (!std::holds_alternative<Numbers>(domain)) return "";
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = rest == text.data() + text.size();
  // What even a double cannot hold is too large or too small: the exponent's sign tells.
  const bool too_small =
      error == std::errc::result_out_of_range
          ? text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos
          : number != 0 && std::abs(number) < kLeastNumber;
  if (!whole || !too_small) return "";
  return fmt::format("; single precision holds no less than {}, besides 0", kLeastNumber);
}

std::string_view type_name(const Domain& domain) {
  return std::visit(TypeName{}, domain);
}

std::string allowed(const Domain& domain) {
  return std::visit([](const auto& values) { return allowed_in(values); }, domain);
}

}  // namespace slimpipe::config
