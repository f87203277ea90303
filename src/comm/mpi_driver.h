#pragma once
// Who makes a process's MPI calls. This MPI moves data only inside its calls, so the driver is also who
// makes messages arrive: a thread of its own, or the device's own where there is one and no core to spare.

#include <memory>

#include "slimpipe/core/stop.h"

#include "comm/mpi_requests.h"

namespace slimpipe::comm {

class MpiDriver {
 public:
  virtual ~MpiDriver() = default;
  /// Never blocks.
  virtual void submit(MpiMessagePointer message) = 0;
  /// Blocks until the message is done (true) or the run has stopped and MPI is at rest (false).
  [[nodiscard]] virtual bool wait(const MpiMessage& message) = 0;
  virtual void progress() = 0;
  /// Gives up all messages of this process; on return nobody touches their buffers.
  virtual void abandon() noexcept = 0;
};

/// The calling thread makes the calls, inside submit, wait and progress.
[[nodiscard]] std::unique_ptr<MpiDriver> make_caller_driver(std::unique_ptr<MpiRequests> requests,
                                                            const FirstError& first_error);

/// A thread of its own makes the calls, for the devices of `topology` in this process. It sleeps while
/// nothing is outstanding. A message that fails ends it.
[[nodiscard]] std::unique_ptr<MpiDriver> make_engine_driver(std::unique_ptr<MpiRequests> requests,
                                                            const Topology& topology,
                                                            FirstError& first_error);

}  // namespace slimpipe::comm
