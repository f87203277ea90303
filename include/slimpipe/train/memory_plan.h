#pragma once
// What every device of a run will allocate, told before anything is.

#include <vector>

#include "slimpipe/device/arena.h"
#include "slimpipe/train/session.h"

namespace slimpipe::train {

/// Live and peak bytes of every pipeline rank after a training step, and after a validation of
/// `validation_samples` sequences where that is not 0: a dry run of the same programs with the same layers on
/// devices without memory. To the byte what a session of `config` on the platform's backend reports.
[[nodiscard]] std::vector<device::ArenaStats> plan_memory(const config::RunConfig& config, Platform platform,
                                                          int validation_samples = 0);

}  // namespace slimpipe::train
