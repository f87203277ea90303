#pragma once
// A program's run without messages and without work, for what its runner allocates.

#include "slimpipe/device/stream.h"
#include "slimpipe/runtime/program.h"
#include "slimpipe/runtime/step_runner.h"

namespace slimpipe::runtime {

/// The steps in order, each message done at its planned wait, as the executor has them: a buffer's first and
/// last use are places in the program, so the runner allocates and frees as in a real run.
void run_dry(const Program& program, StepRunner& runner, device::Stream& stream);

}  // namespace slimpipe::runtime
