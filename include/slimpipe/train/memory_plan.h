#pragma once
// What every device of a run will allocate, told before anything is.

#include <string>
#include <vector>

#include "slimpipe/device/arena.h"
#include "slimpipe/train/session.h"

namespace slimpipe::train {

/// Live and peak bytes of every pipeline rank after a training step, and after a validation of
/// `validation_samples` sequences where that is not 0: a dry run of the same programs with the same layers on
/// devices without memory. To the byte what a session of `config` on the platform's backend reports.
[[nodiscard]] std::vector<device::ArenaStats> plan_memory(const config::RunConfig& config, Platform platform,
                                                          int validation_samples = 0);

/// A table: a row a device, a column for each scope that any of them uses, and all together; MiB.
[[nodiscard]] std::string format_memory_plan(const std::vector<device::ArenaStats>& plans);

/// Plans the run where `memory.limit` is set. Throws InputError where a device would need more: with the
/// table, and the settings that would fit of those that cost little speed, the least first.
void check_memory_limit(const config::RunConfig& config, int validation_samples);

}  // namespace slimpipe::train
