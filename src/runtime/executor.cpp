#include "slimpipe/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <iterator>
#include <optional>

namespace slimpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

const char* category_of(const Step& step) {
  if (schedule::is_exchange(step.phase)) return "exchange";
  if (step.kind != StepKind::kCompute) return "communication";
  if (step.phase == schedule::Phase::kCombineTiedGradients) return "reduction";
  return step.action.kind == schedule::ActionKind::kForward ? "forward" : "backward";
}

/// The same name at both ends but for its first word: "send activation F0.1.2", "receive activation F0.1.2".
std::string name_of_message(const Step& step) {
  if (step.phase != schedule::Phase::kCombineTiedGradients)
    return fmt::format("{} {}", schedule::name_of(step.phase), schedule::to_string(step.action));
  return step.kind == StepKind::kWaitSend ? "send tied gradients" : "receive tied gradients";
}

/// The compute steps of one run, on the clock.
class ComputeSpans {
 public:
  explicit ComputeSpans(std::size_t most) { spans_.reserve(most); }

  void add(Clock::time_point start, Clock::time_point end) {
    spans_.push_back({start, end, total_});
    total_ += end - start;
  }
  [[nodiscard]] Clock::duration total() const { return total_; }
  /// Computed before `time`.
  [[nodiscard]] Clock::duration until(Clock::time_point time) const {
    const auto later = std::ranges::upper_bound(spans_, time, {}, &Span::start);
    if (later == spans_.begin()) return {};
    const Span& span = *std::prev(later);
    return span.before + (std::min(time, span.end) - span.start);
  }

 private:
  struct Span {
    Clock::time_point start, end;
    Clock::duration before;
  };
  std::vector<Span> spans_;
  Clock::duration total_{};
};

/// Collects the events of one run: a span a step, and one a message from its post to its completion.
class Recorder {
 public:
  Recorder(const Program& program, std::vector<io::TraceEvent>& events)
      : device_(program.device), events_(events) {}

  void add_step(const Step& step, Clock::time_point start, Clock::time_point end) {
    add(describe(step), category_of(step), start, end, io::TraceLane::kSteps);
  }
  void add_message(const Step& step, Clock::time_point posted, Clock::time_point done) {
    add(name_of_message(step), "message", posted, done, io::TraceLane::kMessages);
  }

 private:
  void add(std::string name, const char* category, Clock::time_point start, Clock::time_point end,
           io::TraceLane lane) {
    const double start_us = io::trace_time_us(start);
    events_.push_back(
        {std::move(name), category, device_, start_us, io::trace_time_us(end) - start_us, lane});
  }

  int device_;
  std::vector<io::TraceEvent>& events_;
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
  std::vector<Clock::time_point> posted(program.transfers.size());
  ComputeSpans compute(program.steps.size());
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
    comm::Moment done;  // the message waited for
    switch (step.kind) {
      case StepKind::kCompute:
        runner_.run(step, stream_);
        compute.add(step_start, Clock::now());
        endpoint_.progress();  // may move messages on this thread
        break;
      case StepKind::kPostReceive:
      case StepKind::kPostSend: {
        const Transfer& transfer = program.transfers[step.transfer];
        const std::span<std::byte> memory = runner_.message(step, transfer);
        posted[step.transfer] = step_start;
        tickets[step.transfer] =
            step.kind == StepKind::kPostSend
                ? endpoint_.post_send(transfer.channel, memory.data(), transfer.bytes)
                : endpoint_.post_receive(transfer.channel, memory.data(), transfer.bytes);
        break;
      }
      case StepKind::kWaitReceive:
      case StepKind::kWaitSend:
        done = endpoint_.wait(tickets[step.transfer]);
        runner_.message_done(step, program.transfers[step.transfer]);
        break;
    }
    const auto step_end = Clock::now();
    const bool exchange = schedule::is_exchange(step.phase);
    if (waits) {
      times.wait_ms += milliseconds(step_end - step_start);
      if (exchange) times.exchange_wait_ms += milliseconds(step_end - step_start);
    }
    if (step.kind == StepKind::kWaitSend) {
      const auto start = posted[step.transfer];
      const double send_ms = milliseconds(done - start);
      const double hidden_ms = milliseconds(compute.until(done) - compute.until(start));
      times.send_ms += send_ms;
      times.send_hidden_ms += hidden_ms;
      if (exchange) {
        times.exchange_bytes += static_cast<double>(program.transfers[step.transfer].bytes);
        times.exchange_send_ms += send_ms;
        times.exchange_send_hidden_ms += hidden_ms;
      }
    }
    if (recorder) {
      recorder->add_step(step, step_start, step_end);
      if (waits) recorder->add_message(step, posted[step.transfer], done);
    }
    step_start = step_end;
  }
  times.compute_ms = milliseconds(compute.total());
  times.wall_ms = milliseconds(step_start - begin);
  progress_.end();
  return times;
}

}  // namespace slimpipe::runtime
