#include "slimpipe/runtime/dry_run.h"

namespace slimpipe::runtime {

void run_dry(const Program& program, StepRunner& runner, device::Stream& stream) {
  for (const Step& step : program.steps) {
    switch (step.kind) {
      case StepKind::kCompute:
        runner.run(step, stream);
        break;
      case StepKind::kPostReceive:
      case StepKind::kPostSend:
        (void)runner.message(step, program.transfers[step.transfer]);
        break;
      case StepKind::kWaitReceive:
      case StepKind::kWaitSend:
        runner.message_done(step, program.transfers[step.transfer]);
        break;
    }
  }
}

}  // namespace slimpipe::runtime
