// The executor with a step runner that computes nothing: order, times, and how a failure anywhere ends every
// device.

#include "slimpipe/runtime/executor.h"

#include <deque>
#include <memory>
#include <numeric>
#include <set>

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/device_threads.h"

#include "support/catch.h"
#include "support/fake_runner.h"

namespace slimpipe::runtime {
namespace {

constexpr int kDevices = 3;
constexpr std::int64_t kMessageBytes = 48;

std::vector<Program> programs() {
  CompileInput input;
  input.stage_layers = {2, 2, 2};
  input.message_bytes = kMessageBytes;
  input.tied_bytes = 16;
  input.devices.resize(kDevices);
  std::iota(input.devices.begin(), input.devices.end(), 0);
  return compile(schedule::build({.kind = schedule::Kind::kSlimPipe,
                                  .pipeline = kDevices,
                                  .virtual_stages = 1,
                                  .microbatches = 2,
                                  .slices = 3,
                                  .warmup_slope = 2}),
                 input);
}

using test::FakeRunner;

/// Devices with fake runners over the in-process transport.
struct Devices {
  /// The call `fail_at` of `failing_device` throws; -1: none.
  explicit Devices(int failing_device = -1, int fail_at = -1)
      : transport(comm::make_in_process_transport(kDevices, first_error)) {
    for (int d = 0; d < kDevices; ++d) {
      runners.emplace_back(d, [=](int call, const Step& step) {
        if (d == failing_device && call == fail_at) throw Error("broken at " + describe(step));
      });
      progress.emplace_back(d);
    }
  }

  void run(const std::vector<Program>& programs, std::vector<std::vector<io::TraceEvent>>* traces = nullptr) {
    DeviceThreads threads(kDevices, first_error, [this](int d) {
      return FailureSite{0, d, 5, progress[d].describe()};
    });
    threads.each([&](int d) {
      Executor executor(transport->endpoint(d), runners[d], streams[d], progress[d], StopToken(first_error));
      times[d] = executor.run(programs[d], traces == nullptr ? nullptr : &traces->at(d));
    });
  }

  FirstError first_error;
  std::unique_ptr<comm::Transport> transport;
  std::deque<FakeRunner> runners;
  std::deque<Progress> progress;
  device::Stream streams[kDevices];
  ExecutionTimes times[kDevices];
};

int calls_of(const Program& program) {
  return static_cast<int>(program.steps.size());  // every step calls its runner once
}

}  // namespace

TEST_CASE("the compute steps of a program run in order, and every message arrives as it was sent", "[unit]") {
  const std::vector<Program> all = programs();
  Devices devices;
  devices.run(all);
  for (int d = 0; d < kDevices; ++d) {
    std::vector<std::string> expected;
    for (const Step& step : all[d].steps) {
      if (step.kind == StepKind::kCompute) expected.push_back(describe(step));
    }
    CHECK(devices.runners[d].done() == expected);
    devices.runners[d].check_nothing_left();
    CHECK(devices.runners[d].streams() == std::set<device::Stream*>{&devices.streams[d]});
    CHECK(devices.progress[d].describe() == "idle");
    const ExecutionTimes& times = devices.times[d];
    CHECK(times.wall_ms > 0);
    CHECK(times.compute_ms + times.wait_ms <= times.wall_ms);
  }
}

TEST_CASE("a trace has every step, in order, without overlaps", "[unit]") {
  const std::vector<Program> all = programs();
  std::vector<std::vector<io::TraceEvent>> traces(kDevices);
  Devices devices;
  devices.run(all, &traces);
  for (int d = 0; d < kDevices; ++d) {
    std::vector<std::string> names;
    std::size_t messages = 0;
    double end_us = 0;
    for (const io::TraceEvent& event : traces[d]) {
      CHECK(event.track == d);
      if (event.lane == io::TraceLane::kMessages) {
        ++messages;
        continue;
      }
      names.push_back(event.name);
      CHECK(event.duration_us >= 0);
      CHECK(event.start_us >= end_us - 1e-3);
      end_us = event.start_us + event.duration_us;
    }
    std::vector<std::string> expected;
    for (const Step& step : all[d].steps) expected.push_back(describe(step));
    CHECK(names == expected);
    CHECK(messages == all[d].transfers.size());
  }
}

TEST_CASE("a failure in any step of any device ends all of them and is the one reported", "[unit]") {
  const std::vector<Program> all = programs();
  for (int failing = 0; failing < kDevices; ++failing) {
    for (int call = 0; call < calls_of(all[failing]); ++call) {
      const std::string step = describe(all[failing].steps[call]);
      INFO("device " << failing << " fails at " << step);
      Devices devices(failing, call);
      CHECK_THROWS_WITH(devices.run(all), "broken at " + step);
      const auto report = devices.first_error.report();
      REQUIRE(report);
      CHECK(report->site.device == failing);
      CHECK(report->site.step == 5);
      CHECK(report->site.action == fmt::format("step {} of {}: {}", call + 1, all[failing].steps.size(),
                                               describe(all[failing], all[failing].steps[call])));
    }
  }
}

TEST_CASE("a device that failed has given up its messages: nothing can be posted any more", "[unit]") {
  const std::vector<Program> all = programs();
  Devices devices(1, 4);
  CHECK_THROWS_AS(devices.run(all), Error);
  std::byte byte{};
  for (int d = 0; d < kDevices; ++d) {
    const comm::Channel channel{d, (d + 1) % kDevices, comm::Purpose::kControl};
    CHECK_THROWS_AS(devices.transport->endpoint(d).post_send(channel, &byte, 1), Error);
  }
}

TEST_CASE("a program is not begun once the run has failed", "[unit]") {
  const std::vector<Program> all = programs();
  Devices devices;
  devices.first_error.set(std::make_exception_ptr(Error("failed before")), {});
  CHECK_THROWS_WITH(devices.run(all), "failed before");
  for (const FakeRunner& runner : devices.runners) CHECK(runner.done().empty());
}

TEST_CASE("a device's activity outside of programs is what it is described by", "[unit]") {
  const std::vector<Program> all = programs();
  Progress progress(2);
  CHECK(progress.describe() == "idle");
  const std::int64_t moves = progress.moves();
  progress.doing("reading the checkpoint");
  CHECK(progress.describe() == "reading the checkpoint");
  CHECK(progress.moves() > moves);
  progress.begin(all[0]);
  progress.at(1, false);
  CHECK(progress.describe() ==
        fmt::format("step 2 of {}: {}", all[0].steps.size(), describe(all[0], all[0].steps[1])));
  progress.end();
  CHECK(progress.describe() == "reading the checkpoint");
}

}  // namespace slimpipe::runtime
