#pragma once
// Learning-rate schedules: linear warm-up, then constant, linear, cosine or warm-up–stable–decay.

#include <cstdint>

#include "slimpipe/config/run_config.h"

namespace slimpipe::train {

/// Learning rate of step `step` (1-based). Warm-up: lr · step / warmup_steps. Afterwards, with
/// t in (0, 1] the share of the remaining steps up to and including this one: linear and cosine fall from lr
/// to lr · min_lr_ratio at the last step; wsd stays at lr and falls linearly over the last decay_steps.
[[nodiscard]] double learning_rate(const config::TrainingConfig& training, std::int64_t step);

}  // namespace slimpipe::train
