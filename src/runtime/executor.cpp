#include "slimpipe/runtime/executor.h"

#include <chrono>

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

io::TraceEvent trace_event(const Program& program, const Step& step, Clock::time_point start,
                           Clock::time_point end) {
  // steady_clock's epoch is the same in all processes of a host, so their traces line up.
  const double start_us = std::chrono::duration<double, std::micro>(start.time_since_epoch()).count();
  return {describe(step), category_of(step), program.device, start_us, milliseconds(end - start) * 1e3};
}

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
        runner_.run(step);
        endpoint_.progress();
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
    if (trace != nullptr) trace->push_back(trace_event(program, step, step_start, step_end));
    step_start = step_end;
  }
  times.wall_ms = milliseconds(step_start - begin);
  progress_.end();
  return times;
}

}  // namespace slimpipe::runtime
