#include "slimpipe/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace slimpipe::train {
namespace {

double mix(double from, double to, double t) {
  return from + (to - from) * t;
}

}  // namespace

double learning_rate(const config::TrainingConfig& training, std::int64_t step) {
  const double peak = training.lr;
  const double floor = peak * training.min_lr_ratio;
  if (step <= training.warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(training.warmup_steps);
  }
  const std::int64_t remaining = std::max<std::int64_t>(training.steps - training.warmup_steps, 1);
  const double t = std::clamp(
      static_cast<double>(step - training.warmup_steps) / static_cast<double>(remaining), 0.0, 1.0);
  switch (training.lr_schedule) {
    case config::LrSchedule::kConstant:
      return peak;
    case config::LrSchedule::kLinear:
      return mix(peak, floor, t);
    case config::LrSchedule::kCosine:
      return mix(floor, peak, 0.5 * (1 + std::cos(std::numbers::pi * t)));
    case config::LrSchedule::kWsd: {
      const std::int64_t wanted =
          training.decay_steps > 0 ? training.decay_steps : std::max<std::int64_t>(training.steps / 10, 1);
      const std::int64_t decay = std::min(wanted, remaining);  // begins after the warm-up
      const std::int64_t into_decay = step - (training.steps - decay);
      if (into_decay <= 0) return peak;
      return mix(peak, floor, std::min(1.0, static_cast<double>(into_decay) / static_cast<double>(decay)));
    }
  }
  return peak;
}

}  // namespace slimpipe::train
