#include "slimpipe/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "slimpipe/core/check.h"

namespace slimpipe::model {
namespace {

std::vector<double> plain_frequencies(double theta, std::int64_t head_size) {
  std::vector<double> inverse(static_cast<std::size_t>(head_size / 2));
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    inverse[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
  }
  return inverse;
}

/// NTK-aware scaling: a larger base, so that the slowest frequency is divided by `factor` and the fastest
/// stays.
double ntk_theta(const config::RopeConfig& rope, std::int64_t head_size) {
  const auto d = static_cast<double>(head_size);
  SLIMPIPE_CHECK(head_size > 2, "NTK-aware rope needs a head size above 2, not {}", head_size);
  return rope.theta * std::pow(rope.factor, d / (d - 2));
}

/// The (fractional) dimension whose frequency turns `rotations` times within the original context.
double yarn_dimension(const config::RopeConfig& rope, double rotations, double head_size) {
  const double wavelength = static_cast<double>(rope.original_context) / rotations;
  return head_size * std::log(wavelength / (2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

/// YaRN: fast dimensions keep their frequency, slow ones are interpolated, with a ramp between.
RopeFrequencies yarn(const config::RopeConfig& rope, std::int64_t head_size) {
  const auto d = static_cast<double>(head_size);
  const double low = std::max(std::floor(yarn_dimension(rope, rope.beta_fast, d)), 0.0);
  double high = std::min(std::ceil(yarn_dimension(rope, rope.beta_slow, d)), d - 1);
  if (low == high) high += 0.001;  // a step instead of a division by zero
  RopeFrequencies result{.inverse = plain_frequencies(rope.theta, head_size)};
  for (std::size_t i = 0; i < result.inverse.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.inverse[i] *= interpolated / rope.factor + (1 - interpolated);
  }
  result.magnitude = rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1;
  return result;
}

/// Llama 3: wavelengths below `original / high_frequency_factor` stay, above `original /
/// low_frequency_factor` are divided, and are blended between.
double llama3_frequency(const config::RopeConfig& rope, double inverse) {
  const double turns = static_cast<double>(rope.original_context) * inverse / (2 * std::numbers::pi);
  if (turns > rope.high_frequency_factor) return inverse;
  if (turns < rope.low_frequency_factor) return inverse / rope.factor;
  const double kept =
      (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
  return kept * inverse + (1 - kept) * inverse / rope.factor;
}

}  // namespace

RopeFrequencies rope_frequencies(const config::RopeConfig& rope, std::int64_t head_size) {
  SLIMPIPE_CHECK(head_size > 0 && head_size % 2 == 0, "rope of head size {}", head_size);
  switch (rope.kind) {
    case config::RopeKind::kPlain:
      return {.inverse = plain_frequencies(rope.theta, head_size)};
    case config::RopeKind::kLinear: {
      RopeFrequencies result{.inverse = plain_frequencies(rope.theta, head_size)};
      for (double& inverse : result.inverse) inverse /= rope.factor;
      return result;
    }
    case config::RopeKind::kNtk:
      return {.inverse = plain_frequencies(ntk_theta(rope, head_size), head_size)};
    case config::RopeKind::kYarn:
      return yarn(rope, head_size);
    case config::RopeKind::kLlama3: {
      RopeFrequencies result{.inverse = plain_frequencies(rope.theta, head_size)};
      for (double& inverse : result.inverse) inverse = llama3_frequency(rope, inverse);
      return result;
    }
  }
  throw_error("unknown rope kind {}", static_cast<int>(rope.kind));
}

}  // namespace slimpipe::model
