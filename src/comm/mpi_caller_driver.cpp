#include <algorithm>
#include <chrono>
#include <sched.h>
#include <thread>

#include "comm/mpi_driver.h"

namespace slimpipe::comm {
namespace {

/// Pauses between polls: at first only other threads are let run, since the message may be about to
/// arrive; then sleeps that grow, since the core may be wanted by a process that computes it.
class Backoff {
 public:
  void pause() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongestSleep);
  }

 private:
  static constexpr int kYields = 100;  // some 50 us where the core is not shared
  static constexpr std::chrono::microseconds kLongestSleep{200};
  int yields_ = 0;
  std::chrono::microseconds sleep_{20};
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

  bool done_or_stopped(const MpiMessage& message) override {
    if (!message.done) poll();
    return message.done || stop_.stopped();
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
