#pragma once
// Whether messages move while devices compute: programs whose compute steps do not end before a message has
// arrived. How long anything takes does not matter; what never comes shows as a limit, or the test's
// time-out, that only a failing test reaches.

#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/executor.h"

#include "support/device_harness.h"
#include "support/fake_runner.h"

namespace slimpipe::test {

/// Blocks until `condition` holds. Throws Stopped where the run is stopped meanwhile, and Error naming `what`
/// at the limit.
template <typename Condition>
void wait_until(const FirstError& first_error, const std::string& what, Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    first_error.throw_if_stopped();
    if (std::chrono::steady_clock::now() > limit) throw Error("it never came to pass that " + what);
    std::this_thread::yield();
  }
}

/// An endpoint that knows a program's messages by their number and counts the turns that it is given. A
/// message may be waited for before its turn in the program.
class ObservedEndpoint final : public comm::Endpoint {
 public:
  explicit ObservedEndpoint(comm::Endpoint& endpoint) : endpoint_(endpoint) {}

  comm::Ticket post_send(const comm::Channel& channel, const void* data, std::int64_t bytes) override {
    return posted_.emplace_back(endpoint_.post_send(channel, data, bytes));
  }
  comm::Ticket post_receive(const comm::Channel& channel, void* data, std::int64_t bytes) override {
    return posted_.emplace_back(endpoint_.post_receive(channel, data, bytes));
  }
  comm::Moment wait(comm::Ticket ticket) override {
    const auto arrived = arrived_.find(ticket);
    return arrived != arrived_.end() ? arrived->second : endpoint_.wait(ticket);
  }
  void progress() override {
    ++turns_;
    endpoint_.progress();
  }
  void abandon() noexcept override { endpoint_.abandon(); }

  /// Of the transfer with this index in the program: transfers are numbered as they are posted.
  [[nodiscard]] bool is_posted(int transfer) const { return transfer < std::ssize(posted_); }
  void wait_early(int transfer) {
    const comm::Ticket ticket = posted_.at(transfer);
    arrived_.emplace(ticket, endpoint_.wait(ticket));
  }
  [[nodiscard]] int turns() const { return turns_; }

 private:
  comm::Endpoint& endpoint_;
  std::vector<comm::Ticket> posted_;
  std::map<comm::Ticket, comm::Moment> arrived_;  ///< waited for before their turn
  int turns_ = 0;
};

/// Programs of a pipeline over all of `devices`, with messages long enough to need both ends of a transport.
inline std::vector<runtime::Program> pipeline_programs(schedule::Kind kind, int devices) {
  runtime::CompileInput input;
  input.stage_layers.assign(static_cast<std::size_t>(devices), 2);
  input.message_bytes = 200'003;
  input.devices.resize(static_cast<std::size_t>(devices));
  std::iota(input.devices.begin(), input.devices.end(), 0);
  return compile(
      schedule::build({.kind = kind,
                       .pipeline = devices,
                       .virtual_stages = 1,
                       .microbatches = devices + 1,  // so that 1F1B gets beyond its warm-up everywhere
                       .slices = schedule::is_sliced(kind) ? 3 : 1,
                       .warmup_slope = 2}),
      input);
}

/// For each compute step that is the last one before a wait for a message, that message's transfer.
inline std::map<int, int> messages_due_in(const runtime::Program& program) {
  std::map<int, int> due;
  int last_compute = -1;
  for (int i = 0; i < std::ssize(program.steps); ++i) {
    const runtime::Step& step = program.steps[static_cast<std::size_t>(i)];
    if (step.kind == runtime::StepKind::kCompute) last_compute = i;
    if (step.kind == runtime::StepKind::kWaitReceive && last_compute >= 0) due[last_compute] = step.transfer;
  }
  return due;
}

/// Runs the programs over the harness's transport. `watchful` waits for each of its messages inside the
/// compute step before the one that needs it; one that does not come by then shows as the time-out of the
/// test. The wait must not move the message, so this is for transports that are not driven by the waiting
/// thread.
inline void messages_arrive_during_compute(DeviceHarness& harness,
                                           const std::vector<runtime::Program>& programs, int watchful) {
  harness.run_well([&](const DeviceContext& context) {
    const runtime::Program& program = programs[static_cast<std::size_t>(context.device)];
    ObservedEndpoint endpoint(context.endpoint);
    const std::map<int, int> due =
        context.device == watchful ? messages_due_in(program) : std::map<int, int>{};
    FakeRunner runner(context.device, [&](int index, const runtime::Step& step) {
      const auto message = due.find(index);
      if (message == due.end()) return;
      SLIMPIPE_CHECK(endpoint.is_posted(message->second),
                     "device {} computes '{}' without having posted message {}", context.device,
                     describe(step), message->second);
      endpoint.wait_early(message->second);
    });
    device::Stream stream;
    runtime::Progress progress(context.device);
    runtime::Executor executor(endpoint, runner, stream, progress, StopToken(context.first_error));
    executor.run(program);
    runner.check_nothing_left();
  });
}

}  // namespace slimpipe::test
