// Messages and compute at the same time: early receives, sends that hold nobody up.

#include "support/overlap.h"

#include <atomic>
#include <utility>

#include "support/catch.h"
#include "support/in_process_harness.h"

namespace slimpipe::runtime {
namespace {

using schedule::Kind;

int receives_of(const Program& program) {
  return static_cast<int>(std::ranges::count(program.steps, StepKind::kWaitReceive, &Step::kind));
}

/// Takes messages for done when they are posted, or at the latest turn it was given before they are waited
/// for.
class PunctualEndpoint final : public comm::Endpoint {
 public:
  explicit PunctualEndpoint(bool at_once) : at_once_(at_once) {}
  comm::Ticket post_send(const comm::Channel&, const void*, std::int64_t) override {
    posted_.push_back(std::chrono::steady_clock::now());
    return std::ssize(posted_) - 1;
  }
  comm::Ticket post_receive(const comm::Channel&, void*, std::int64_t) override {
    throw Error("these programs only send");
  }
  comm::Moment wait(comm::Ticket ticket) override {
    const comm::Moment posted = posted_.at(static_cast<std::size_t>(ticket));
    return at_once_ ? posted : std::max(posted, turn_);
  }
  void progress() override { turn_ = std::chrono::steady_clock::now(); }
  void abandon() noexcept override {}

 private:
  bool at_once_;
  std::vector<comm::Moment> posted_;
  comm::Moment turn_;
};

/// Of three slices that a first stage computes and sends on.
ExecutionTimes times_of_sends(bool at_once) {
  CompileInput input;
  input.stage_layers = {1, 1};
  input.message_bytes = 8;
  input.devices = {0, 1};
  const auto programs = compile(schedule::build_forward_only({.kind = Kind::kSlimPipe,
                                                              .pipeline = 2,
                                                              .virtual_stages = 1,
                                                              .microbatches = 1,
                                                              .slices = 3,
                                                              .warmup_slope = 2}),
                                input);
  PunctualEndpoint endpoint(at_once);
  test::FakeRunner runner(0);
  device::Stream stream;
  Progress progress(0);
  FirstError first_error;
  return Executor(endpoint, runner, stream, progress, StopToken(first_error)).run(programs[0]);
}

}  // namespace

TEST_CASE("every message but a device's very first is received while the action before is computed",
          "[unit]") {
  const Kind kind = GENERATE(Kind::kOneFOneB, Kind::kSlimPipe);
  const int devices = GENERATE(2, 4);
  const auto programs = test::pipeline_programs(kind, devices);
  test::InProcessHarness harness(devices);
  for (int watchful = 0; watchful < devices; ++watchful) {
    INFO(schedule::name_of(kind) << ", device " << watchful << " of " << devices);
    const Program& program = programs[watchful];
    const int first = watchful == 0 ? 0 : 1;  // the first device begins without one
    CHECK(std::ssize(test::messages_due_in(program)) == receives_of(program) - first);
    CHECK_NOTHROW(test::messages_arrive_during_compute(harness, programs, watchful));
  }
}

TEST_CASE("a device computes on behind its sends though nobody has posted a receive", "[unit]") {
  const Kind kind = GENERATE(Kind::kGpipe, Kind::kTeraPipe, Kind::kSlimPipe);
  const auto programs = test::pipeline_programs(kind, 2);
  int sends = programs[0].sends_in_flight.at({0, 1, comm::Purpose::kActivation});
  int held_step = 0;  // the last compute step that does not need the other device
  for (int i = 0; sends >= 0; ++i) {
    const Step& step = programs[0].steps[i];
    if (step.kind == StepKind::kPostSend) --sends;
    if (step.kind == StepKind::kCompute) held_step = i;
  }
  std::atomic<bool> reached{false};
  test::InProcessHarness harness(2);
  CHECK_NOTHROW(harness.run_well([&](const test::DeviceContext& context) {
    if (context.device == 1) {
      test::wait_until(context.first_error, "device 0 sent all it may", [&] { return reached.load(); });
    }
    test::FakeRunner runner(context.device, [&](int index, const Step&) {
      if (context.device == 0 && index == held_step) reached = true;
    });
    device::Stream stream;
    Progress progress(context.device);
    Executor executor(context.endpoint, runner, stream, progress, StopToken(context.first_error));
    executor.run(programs[context.device]);
  }));
  CHECK(reached);
}

TEST_CASE("the time of a send counts as hidden as far as its device computed until it was done", "[unit]") {
  const ExecutionTimes at_once = times_of_sends(true);
  CHECK(at_once.send_ms > 0);
  CHECK(at_once.send_hidden_ms == 0);
  const ExecutionTimes later = times_of_sends(false);
  CHECK(later.send_hidden_ms > 0);
  CHECK(later.send_hidden_ms < later.send_ms);
}

TEST_CASE("the transport is given a turn after every compute step", "[unit]") {
  const auto programs = test::pipeline_programs(Kind::kSlimPipe, 2);
  test::InProcessHarness harness(2);
  CHECK_NOTHROW(harness.run_well([&](const test::DeviceContext& context) {
    test::ObservedEndpoint endpoint(context.endpoint);
    int computed = 0;
    test::FakeRunner runner(context.device, [&](int, const Step& step) {
      SLIMPIPE_CHECK(endpoint.turns() == computed, "{} turns after {} compute steps", endpoint.turns(),
                     computed);
      if (step.kind == StepKind::kCompute) ++computed;
    });
    device::Stream stream;
    Progress progress(context.device);
    Executor executor(endpoint, runner, stream, progress, StopToken(context.first_error));
    executor.run(programs[context.device]);
    SLIMPIPE_CHECK(computed > 0 && endpoint.turns() == computed, "{} turns after {} compute steps",
                   endpoint.turns(), computed);
  }));
}

}  // namespace slimpipe::runtime
