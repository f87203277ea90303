#include "slimpipe/runtime/executor.h"

#include <chrono>
#include <fmt/core.h>
#include <optional>

namespace slimpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

const char* category_of(const Step& step) {
  if (step.kind != StepKind::kCompute) return "communication";
  return step.action.kind == schedule::ActionKind::kForward ? "forward" : "backward";
}

/// steady_clock's epoch is the same in all processes of a host, so their traces line up.
double microseconds(Clock::time_point time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

/// Collects the events of one run: a span a step, and one a message from its post to its completion.
class Recorder {
 public:
  Recorder(const Program& program, std::vector<io::TraceEvent>& events)
      : program_(program),
        events_(events),
        posted_us_(program.transfers.size()),
        arrived_us_(program.transfers.size()) {}

  /// Notes which messages are complete, so that their spans end when they were, not when they were waited
  /// for.
  void look_at_messages(comm::Endpoint& endpoint, const std::vector<comm::Ticket>& tickets) {
    std::erase_if(under_way_, [&](int transfer) {
      if (!endpoint.test(tickets[transfer])) return false;
      arrived_us_[transfer] = microseconds(Clock::now());
      return true;
    });
  }

  void add(const Step& step, Clock::time_point start, Clock::time_point end) {
    const double start_us = microseconds(start);
    const double end_us = microseconds(end);
    events_.push_back({describe(step), category_of(step), program_.device, start_us, end_us - start_us,
                       io::TraceLane::kSteps});
    if (step.kind == StepKind::kPostReceive || step.kind == StepKind::kPostSend) {
      posted_us_[step.transfer] = start_us;
      under_way_.push_back(step.transfer);
    } else if (step.kind == StepKind::kWaitReceive || step.kind == StepKind::kWaitSend) {
      std::erase(under_way_, step.transfer);
      const double posted_us = posted_us_[step.transfer];
      const double arrived_us = arrived_us_[step.transfer];
      events_.push_back(
          {fmt::format("{} {}", schedule::name_of(step.phase), schedule::to_string(step.action)), "message",
           program_.device, posted_us, (arrived_us > 0 ? arrived_us : end_us) - posted_us,
           io::TraceLane::kMessages});
    }
  }

 private:
  const Program& program_;
  std::vector<io::TraceEvent>& events_;
  std::vector<double> posted_us_;
  std::vector<double> arrived_us_;  ///< seen complete before its wait; 0: not yet
  std::vector<int> under_way_;
};

}  // namespace

ExecutionTimes Executor::run(const Program& program, std::vector<io::TraceEvent>* trace) {
  try {
    return run_steps(program, trace);
  } catch (...) {
    endpoint_.abandon();  // nobody may touch this device's buffers any more
    throw;
  }
}

ExecutionTimes Executor::run_steps(const Program& program, std::vector<io::TraceEvent>* trace) {
  std::vector<comm::Ticket> tickets(program.transfers.size());
  ExecutionTimes times;
  std::optional<Recorder> recorder;
  if (trace != nullptr) recorder.emplace(program, *trace);
  progress_.begin(program);
  const auto begin = Clock::now();
  auto step_start = begin;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    const bool waits = step.kind == StepKind::kWaitReceive || step.kind == StepKind::kWaitSend;
    progress_.at(static_cast<std::int64_t>(i), waits);
    stop_.throw_if_stopped();
    switch (step.kind) {
      case StepKind::kCompute:
        runner_.run(step, stream_);
        endpoint_.progress();
        if (recorder) recorder->look_at_messages(endpoint_, tickets);
        break;
      case StepKind::kPostReceive:
      case StepKind::kPostSend: {
        const Transfer& transfer = program.transfers[step.transfer];
        const std::span<std::byte> memory = runner_.message(step, transfer);
        tickets[step.transfer] =
            step.kind == StepKind::kPostSend
                ? endpoint_.post_send(transfer.channel, memory.data(), transfer.bytes)
                : endpoint_.post_receive(transfer.channel, memory.data(), transfer.bytes);
        break;
      }
      case StepKind::kWaitReceive:
      case StepKind::kWaitSend:
        endpoint_.wait(tickets[step.transfer]);
        runner_.message_done(step, program.transfers[step.transfer]);
        break;
    }
    const auto step_end = Clock::now();
    const double elapsed = milliseconds(step_end - step_start);
    if (step.kind == StepKind::kCompute) times.compute_ms += elapsed;
    if (waits) times.wait_ms += elapsed;
    if (recorder) recorder->add(step, step_start, step_end);
    step_start = step_end;
  }
  times.wall_ms = milliseconds(step_start - begin);
  progress_.end();
  return times;
}

}  // namespace slimpipe::runtime
