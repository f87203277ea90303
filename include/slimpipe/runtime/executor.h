#pragma once
// Runs one device's Program, strictly in order. It alone posts messages and waits for them.

#include <vector>

#include "slimpipe/comm/transport.h"
#include "slimpipe/core/stop.h"
#include "slimpipe/device/stream.h"
#include "slimpipe/io/trace.h"
#include "slimpipe/runtime/progress.h"
#include "slimpipe/runtime/step_runner.h"

namespace slimpipe::runtime {

/// Where a device's time went in one run of a program.
struct ExecutionTimes {
  double wall_ms = 0;     ///< first step's start to last step's end
  double compute_ms = 0;  ///< inside compute steps
  double wait_ms = 0;     ///< waiting for messages
  // How long messages take shows in the sends: a receive is posted before its data is there.
  double send_ms = 0;         ///< from the post of a send to its completion, summed over the sends
  double send_hidden_ms = 0;  ///< of that, inside compute steps
  // Of all this, the exchange of attention context; compute_ms has its work.
  double exchange_bytes = 0;  ///< sent
  double exchange_wait_ms = 0;
  double exchange_send_ms = 0;
  double exchange_send_hidden_ms = 0;
};

class Executor {
 public:
  /// Compute steps are issued on `stream`. All references outlive the executor.
  Executor(comm::Endpoint& endpoint, StepRunner& runner, device::Stream& stream, Progress& progress,
           StopToken stop)
      : endpoint_(endpoint), runner_(runner), stream_(stream), progress_(progress), stop_(stop) {}

  /// Returns when the last step is issued and every message done. Where `trace` is not null, appends a span a
  /// step and one a message. Throws what a step throws, or Stopped; messages still under way are abandoned
  /// then.
  ExecutionTimes run(const Program& program, std::vector<io::TraceEvent>* trace = nullptr);

 private:
  ExecutionTimes run_steps(const Program& program, std::vector<io::TraceEvent>* trace);

  comm::Endpoint& endpoint_;
  StepRunner& runner_;
  device::Stream& stream_;
  Progress& progress_;
  StopToken stop_;
};

}  // namespace slimpipe::runtime
