#pragma once
// Tells what every device is doing when nothing moves, and ends a run whose devices all wait for ever.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "slimpipe/core/patience.h"
#include "slimpipe/core/stop.h"
#include "slimpipe/runtime/progress.h"

namespace slimpipe::runtime {

struct WatchdogOptions {
  PatienceLimits patience;  ///< the run is given up only where every device waits for others
  std::function<void(const std::string&)> report;  ///< gets the text, several lines
};

class Watchdog {
 public:
  /// `devices` outlive the watchdog. Watches while a Watch is alive.
  Watchdog(WatchdogOptions options, std::vector<const Progress*> devices, FirstError& first_error);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// "device 0: step 12 of 300: …", a line a device.
  [[nodiscard]] std::string describe() const;
  /// Between runs of programs devices are idle on purpose: only from resume to pause is quiet a symptom.
  void resume();
  void pause();

 private:
  void loop();
  [[nodiscard]] std::int64_t moves() const;
  [[nodiscard]] bool all_wait() const;

  WatchdogOptions options_;
  std::vector<const Progress*> devices_;
  FirstError& first_error_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool watching_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace slimpipe::runtime
