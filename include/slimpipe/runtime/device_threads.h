#pragma once
// One thread a local device, alive for the whole run. Everything a device owns is made, used and destroyed
// on its thread.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "slimpipe/core/stop.h"

namespace slimpipe::runtime {

class DeviceThreads {
 public:
  /// `site` tells where a device stands, for the report of a failure; called on the device's thread.
  using Site = std::function<FailureSite(int local_index)>;

  DeviceThreads(int count, FirstError& first_error, Site site);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  /// Runs body(local index) on every device's thread and returns when all are done. An exception in any of
  /// them becomes the run's first error (so the others' waits are given up) and is thrown here once.
  void each(const std::function<void(int)>& body);
  [[nodiscard]] int count() const { return static_cast<int>(threads_.size()); }

 private:
  void end();
  void loop(int index);
  void run_body(int index);

  FirstError& first_error_;
  Site site_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  const std::function<void(int)>* body_ = nullptr;
  std::uint64_t round_ = 0;
  int running_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace slimpipe::runtime
