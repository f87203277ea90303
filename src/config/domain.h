#pragma once
// What values a field of the configuration may have, and how they are written.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace slimpipe::config {

/// A field's value apart from the struct it lives in. Choices are held as their names.
using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;

struct Flags {};  ///< true or false
struct Integers {
  std::int64_t low = 0;
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};
struct Unsigned {};  ///< all of uint64
/// Single precision holds every number of a configuration: 0, and sizes in this range.
inline constexpr double kLeastNumber = 1.2e-38;
inline constexpr double kLargestNumber = 3.4e38;
static_assert(kLeastNumber >= std::numeric_limits<float>::min());
static_assert(kLargestNumber <= std::numeric_limits<float>::max());

struct Numbers {
  double low = 0;
  double high = kLargestNumber;
  bool low_open = false;  ///< low itself is excluded
  bool high_open = false;
};
struct Bytes {};  ///< a number of bytes, with or without a unit
struct Text {};   ///< one line of UTF-8
struct Choices {
  std::vector<std::string> names;
};
using Domain = std::variant<Flags, Integers, Unsigned, Numbers, Bytes, Text, Choices>;

/// The value that `text` stands for, or nothing where it is not what expectation() says: trailing text,
/// overflow and values out of range included.
[[nodiscard]] std::optional<Value> parse(const Domain& domain, std::string_view text);
/// The inverse of parse: the shortest text that parses to the same value.
[[nodiscard]] std::string format(const Domain& domain, const Value& value);

/// "an integer >= 1", "one of none, full": what an error says was expected.
[[nodiscard]] std::string expectation(const Domain& domain);
/// What to do about a text that parse() refuses for a reason that expectation() does not show, to follow it;
/// empty where it shows all.
[[nodiscard]] std::string remark(const Domain& domain, std::string_view text);
/// "integer", "choice": the type's name in the reference.
[[nodiscard]] std::string_view type_name(const Domain& domain);
/// ">= 1", "none, full": the allowed values in the reference.
[[nodiscard]] std::string allowed(const Domain& domain);

}  // namespace slimpipe::config
