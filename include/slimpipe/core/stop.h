#pragma once
// How a run ends when something fails: the first cause wins, and every wait can be given up.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace slimpipe {

/// Where a failure happened, as far as it is known.
struct FailureSite {
  int rank = -1;
  int device = -1;
  std::int64_t step = -1;
  /// With the tensor that moves, in a message: "step 7 of 90: wait receive: F0.1.3 receive activation: hidden
  /// states, 4096 bytes from device 1".
  std::string action;
};

/// The first failure of this process. Thread-safe. Once it is set every wait that watches the token
/// throws Stopped within milliseconds.
class FirstError {
 public:
  struct Report {
    FailureSite site;
    std::string message;
    std::exception_ptr exception;
  };

  /// Stores the failure if it is the first, then calls the listeners, once; returns whether it was. Waits
  /// throw Stopped only after a failure was set, so a Stopped is never the first one.
  bool set(std::exception_ptr exception, FailureSite site) noexcept;
  [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<Report> report() const;
  /// Throws Stopped where a failure has been set.
  void throw_if_stopped() const;
  /// Calls `wake` when the first failure is set (to wake up waits); at once if it already is.
  void on_stop(std::function<void()> wake);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> stopped_{false};
  std::optional<Report> report_;
  std::vector<std::function<void()>> listeners_;
};

/// The reading end that waits are given; refers to a FirstError that outlives it.
class StopToken {
 public:
  explicit StopToken(const FirstError& source) : source_(&source) {}
  [[nodiscard]] bool stopped() const { return source_->stopped(); }
  void throw_if_stopped() const { source_->throw_if_stopped(); }

 private:
  const FirstError* source_;
};

}  // namespace slimpipe
