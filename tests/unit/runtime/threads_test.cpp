#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/device_threads.h"
#include "slimpipe/runtime/watchdog.h"

#include "support/catch.h"

namespace slimpipe::runtime {
namespace {

using namespace std::chrono_literals;

DeviceThreads::Site no_site() {
  return [](int local) { return FailureSite{0, local, 3, "in a test"}; };
}

/// Waits for a condition; the bound only ends a failing test.
template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

TEST_CASE("a body runs once on every device's own thread, round after round", "[unit]") {
  FirstError first;
  DeviceThreads threads(3, first, no_site());
  std::thread::id ids[3];
  threads.each([&](int i) { ids[i] = std::this_thread::get_id(); });
  CHECK(ids[0] != ids[1]);
  std::atomic<int> runs{0};
  for (int round = 0; round < 100; ++round) {
    threads.each([&](int i) {
      if (ids[i] == std::this_thread::get_id()) ++runs;
    });
  }
  CHECK(runs == 300);
}

TEST_CASE("the first failing device is reported with its site, the others' waits are given up", "[unit]") {
  FirstError first;
  DeviceThreads threads(3, first, no_site());
  const auto body = [&](int i) {
    if (i == 1) throw Error("tensor w is gone");
    while (true) {
      StopToken(first).throw_if_stopped();
      std::this_thread::yield();
    }
  };
  CHECK_THROWS_WITH(threads.each(body), "tensor w is gone");
  REQUIRE(first.report());
  CHECK(first.report()->site.device == 1);
  CHECK(first.report()->site.step == 3);
}

TEST_CASE("the watchdog says what every device does when nothing moves, and gives up when all only wait",
          "[unit]") {
  Program program;
  program.steps.push_back({.kind = StepKind::kWaitReceive, .phase = schedule::Phase::kReceiveActivation});
  Progress device(4);
  device.begin(program);
  device.at(0, true);
  FirstError first;
  std::mutex mutex;
  std::vector<std::string> reports;
  const auto report = [&](const std::string& text) {
    const std::scoped_lock lock(mutex);
    reports.push_back(text);
  };
  Watchdog watchdog({.patience = {.report_every = 5ms, .give_up_after = 15ms}, .report = report}, {&device},
                    first);
  watchdog.resume();
  REQUIRE(eventually([&] { return first.stopped(); }));
  watchdog.pause();
  const std::scoped_lock lock(mutex);
  REQUIRE(reports.size() >= 3);
  CHECK(reports[0].find("device 4: waiting, step 1 of 1: wait receive: F0.0.0") != std::string::npos);
  CHECK(first.report()->message.find("given up: nothing has moved") != std::string::npos);
}

TEST_CASE("the watchdog gives up on a sum that another device never joins, reports or not", "[unit]") {
  Progress device(0);
  Progress finished(1);
  device.doing("sum of losses over the devices", true);
  finished.doing(Progress::kDone, true);
  FirstError first;
  std::atomic<int> reports{0};
  Watchdog watchdog(
      {.patience = {.report_every = 0ms, .give_up_after = 4ms}, .report = [&](const auto&) { ++reports; }},
      {&device, &finished}, first);
  watchdog.resume();
  REQUIRE(eventually([&] { return first.stopped(); }));
  const std::string text = first.report()->message;
  CHECK(text.find("device 0: waiting, sum of losses over the devices") != std::string::npos);
  CHECK(text.find("device 1: waiting, done with its part") != std::string::npos);
  CHECK(reports == 0);
}

TEST_CASE("the watchdog never gives up on a device that computes", "[unit]") {
  Program program;
  program.steps.push_back({});
  Progress device(0);
  device.begin(program);
  device.at(0, false);
  FirstError first;
  std::atomic<int> reports{0};
  Watchdog watchdog(
      {.patience = {.report_every = 1ms, .give_up_after = 1ms}, .report = [&](const auto&) { ++reports; }},
      {&device}, first);
  watchdog.resume();
  REQUIRE(eventually([&] { return reports > 5; }));
  CHECK_FALSE(first.stopped());
}

}  // namespace slimpipe::runtime
