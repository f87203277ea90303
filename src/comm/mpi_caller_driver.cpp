#include <algorithm>
#include <chrono>
#include <sched.h>
#include <thread>

#include "comm/mpi_driver.h"
#include "comm/short_sleep.h"

namespace slimpipe::comm {
namespace {

/// Pauses between polls. At first only other threads are let run, since the message may be about to arrive;
/// then sleeps, since the core may be wanted by the process that computes it. They stay short because a
/// long message may need many polls to move (a fragment each, where MPI cannot copy between processes).
class Backoff {
 public:
  void pause() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    if (sleep_ == kShortestSleep) allow_short_sleeps();
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongestSleep);
  }

 private:
  static constexpr int kYields = 200;  // some 200 us, polls included, where the core is not shared
  static constexpr std::chrono::microseconds kShortestSleep{20};
  static constexpr std::chrono::microseconds kLongestSleep{50};
  int yields_ = 0;
  std::chrono::microseconds sleep_ = kShortestSleep;
};

class CallerDriver final : public MpiDriver {
 public:
  CallerDriver(std::unique_ptr<MpiRequests> requests, const FirstError& first_error)
      : requests_(std::move(requests)), stop_(first_error) {}

  ~CallerDriver() override {
    if (stop_.stopped()) requests_->abandon();
  }
  CallerDriver(const CallerDriver&) = delete;
  CallerDriver& operator=(const CallerDriver&) = delete;

  void submit(MpiMessagePointer message) override { requests_->start(std::move(message)); }

  bool wait(const MpiMessage& message) override {
    Backoff backoff;
    while (true) {
      const bool moved = poll();
      if (message.done) return true;
      if (stop_.stopped()) return false;
      if (!moved) backoff.pause();
    }
  }

  void progress() override { poll(); }

  void abandon() noexcept override { requests_->abandon(); }

 private:
  /// Whether any message ended.
  bool poll() {
    const auto ended = requests_->poll();
    for (const MpiMessagePointer& message : ended) message->done = true;
    return !ended.empty();
  }

  std::unique_ptr<MpiRequests> requests_;
  StopToken stop_;
};

}  // namespace

std::unique_ptr<MpiDriver> make_caller_driver(std::unique_ptr<MpiRequests> requests,
                                              const FirstError& first_error) {
  return std::make_unique<CallerDriver>(std::move(requests), first_error);
}

}  // namespace slimpipe::comm
