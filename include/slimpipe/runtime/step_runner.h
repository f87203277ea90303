#pragma once
// What a step does. The seam between the executor, which knows order and messages, and what computes:
// layers on a backend here, a clock or a memory plan elsewhere.

#include <cstddef>
#include <span>

#include "slimpipe/runtime/program.h"

namespace slimpipe::runtime {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// A kCompute step.
  virtual void run(const Step& step) = 0;
  /// The memory of a message about to be posted: for a receive it is allocated here, for a send it is what
  /// the slice's last step filled. Valid until message_done.
  [[nodiscard]] virtual std::span<std::byte> message(const Step& step, const Transfer& transfer) = 0;
  /// After kWaitReceive (the data belongs to the slice) or kWaitSend (the memory can be freed).
  virtual void message_done(const Step& step, const Transfer& transfer) = 0;
};

}  // namespace slimpipe::runtime
