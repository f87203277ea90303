#pragma once
// What a step does. The seam between the executor, which knows order and messages, and what computes:
// layers on a backend here, a clock or a memory plan elsewhere.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slimpipe/device/stream.h"
#include "slimpipe/runtime/program.h"

namespace slimpipe::runtime {

/// Host tokens of one execution of a Program. There are no rows where the device needs no inputs (not the
/// first stage) or no targets (not the last). The rows are the caller's and must live until begin returns.
struct StepTokens {
  std::vector<std::span<const std::int32_t>> inputs;   ///< [m] of [S]
  std::vector<std::span<const std::int32_t>> targets;  ///< [m] of [S]; negative: ignored
  std::vector<std::int64_t> valid_tokens;  ///< [m], on every device: tokens before the sequence's padding
  double gradient_scale = 0;               ///< 1 / valid targets of the global batch
};

/// The runner of one device; used by the device's thread alone. The owner calls begin, hands it to an
/// executor for one execution of the program, then reads the losses.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Makes ready for one execution of `program`, which outlives it; keeps nothing of `tokens`' rows.
  virtual void begin(const Program& program, const StepTokens& tokens) = 0;
  /// A kCompute step: issues its work on `stream` and does not wait for it.
  virtual void run(const Step& step, device::Stream& stream) = 0;
  /// The memory of a message about to be posted: for a receive it is allocated here, for a send it is what
  /// the slice's last step filled. Valid until message_done.
  [[nodiscard]] virtual std::span<std::byte> message(const Step& step, const Transfer& transfer) = 0;
  /// After kWaitReceive (the data belongs to the slice) or kWaitSend (the memory can be freed).
  virtual void message_done(const Step& step, const Transfer& transfer) = 0;
  /// Losses summed over valid targets, one a (microbatch, slice) in that order; read back from the device.
  /// Zeros where this device does not hold the last stage.
  [[nodiscard]] virtual std::vector<double> losses() = 0;
  /// Throws Error naming what is still allocated in the scopes that live within a step.
  virtual void check_nothing_left() const = 0;
};

}  // namespace slimpipe::runtime
