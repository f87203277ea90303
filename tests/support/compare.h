#pragma once
// Comparison of an operator's result with a double-precision reference. One tolerance table, by the
// type that the result is stored in; positions of NaN and infinity are compared before any value.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/core/tensor.h"

#include "support/generate.h"

namespace slimpipe::testing {

struct Tolerance {
  double absolute;
  double relative;
};

/// The project's one table. An operator that rounds intermediates to bf16, or adds up more than a few
/// thousand terms, passes a factor (see compare) and says why at the call.
constexpr Tolerance tolerance_of(DType stored) {
  switch (stored) {
    case DType::kF32:
      return {.absolute = 2e-6, .relative = 2e-6};
    case DType::kBF16:
      return {.absolute = 4e-3, .relative = 4e-3};  // half a unit in the last place is 2^-9
    case DType::kF64:
      return {.absolute = 1e-12, .relative = 1e-6};  // what fp32 terms leave in an fp64 sum
    case DType::kI32:
    case DType::kI16:
      return {.absolute = 0, .relative = 0};
  }
  return {.absolute = 0, .relative = 0};
}

/// "[2, 17]" of the n-th element in row-major order.
inline std::string coordinate_of(const Tensor& tensor, std::int64_t n) {
  std::string text;
  for (int i = tensor.rank(); i-- > 0;) {
    text = fmt::format("{}{}{}", n % tensor.dim(i), text.empty() ? "" : ", ", text);
    n /= tensor.dim(i);
  }
  return "[" + text + "]";
}

/// What compare gives when nothing differs.
inline constexpr std::string_view kAgrees;

/// kAgrees when `actual` agrees with `expected` (row-major), else a text that names the first wrong
/// coordinate and both values, how many are wrong and the worst. For CHECK(compare(...) == kAgrees).
/// `scale` is the magnitude of the terms that were added up to make an element, for results that can
/// cancel: the absolute tolerance is multiplied by it.
inline std::string compare(const Tensor& actual, const std::vector<double>& expected, double factor = 1.0,
                           double scale = 1.0) {
  if (actual.size() != std::ssize(expected))
    return fmt::format("{} has {} elements, the reference {}", actual.describe(), actual.size(),
                       expected.size());
  const std::vector<double> values = values_of(actual);
  const auto at = [&](std::size_t n, const char* what) {
    return fmt::format("{} {} at {}: got {}, expected {}", actual.describe(), what,
                       coordinate_of(actual, static_cast<std::int64_t>(n)), values[n], expected[n]);
  };
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (std::isnan(values[n]) != std::isnan(expected[n])) return at(n, "differs in NaN");
    const bool infinite = std::isinf(values[n]) || std::isinf(expected[n]);
    if (infinite && values[n] != expected[n]) return at(n, "differs in infinity");
  }
  const Tolerance tolerance = tolerance_of(actual.dtype());
  std::string first;
  std::size_t wrong = 0;
  double worst = 0;
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(expected[n])) continue;
    const double error = std::abs(values[n] - expected[n]);
    const double allowed = factor * (tolerance.absolute * scale + tolerance.relative * std::abs(expected[n]));
    worst = std::max(worst, error);
    if (error <= allowed) continue;
    if (wrong++ == 0)
      first = at(n, "differs") + fmt::format(" (error {:.3g}, allowed {:.3g})", error, allowed);
  }
  if (wrong == 0) return std::string(kAgrees);
  return first + fmt::format("; {} of {} elements wrong, worst error {:.3g}", wrong, values.size(), worst);
}

}  // namespace slimpipe::testing
