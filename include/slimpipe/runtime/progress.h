#pragma once
// Where a device stands: written by its executor, read by the watchdog and by error reports.

#include <atomic>
#include <cstdint>
#include <string>

#include "slimpipe/runtime/program.h"

namespace slimpipe::runtime {

/// One device's position. The device's thread writes, anyone reads. A Program outlives its execution.
class Progress {
 public:
  static constexpr const char* kIdle = "idle";
  static constexpr const char* kDone = "done with its part";

  explicit Progress(int device) : device_(device) {}
  void begin(const Program& program) {
    index_.store(0, std::memory_order_relaxed);
    program_.store(&program, std::memory_order_release);
  }
  void at(std::int64_t index, bool waiting) {
    index_.store(index, std::memory_order_relaxed);
    waiting_.store(waiting, std::memory_order_relaxed);
    moves_.fetch_add(1, std::memory_order_release);
  }
  void end() {
    program_.store(nullptr, std::memory_order_release);
    waiting_.store(false, std::memory_order_relaxed);
    moves_.fetch_add(1, std::memory_order_release);
  }
  /// What the device does outside of programs: a literal. `waits`: only waiting for other devices.
  void doing(const char* activity, bool waits = false) {
    waiting_.store(waits, std::memory_order_relaxed);
    activity_.store(activity, std::memory_order_relaxed);
    moves_.fetch_add(1, std::memory_order_release);
  }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::int64_t moves() const { return moves_.load(std::memory_order_acquire); }
  [[nodiscard]] bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// The current step in words, or what the device does outside of programs.
  [[nodiscard]] std::string describe() const;

 private:
  int device_;
  std::atomic<const Program*> program_{nullptr};
  std::atomic<const char*> activity_{kIdle};
  std::atomic<std::int64_t> index_{0};
  std::atomic<std::int64_t> moves_{0};
  std::atomic<bool> waiting_{false};
};

}  // namespace slimpipe::runtime
