#pragma once
// When silence is told and when it is given up. Knows no clock: whoever watches brings the time.

#include <chrono>

namespace slimpipe {

struct PatienceLimits {
  using Duration = std::chrono::steady_clock::duration;
  Duration report_every = std::chrono::seconds(60);    ///< silence is told each time this is over; 0: never
  Duration give_up_after = std::chrono::seconds(600);  ///< silence that lasts this long is for ever
};

/// Reports every so many seconds, the end after ten of them; 0: no reports, and the end as by default.
[[nodiscard]] PatienceLimits patience_of(double report_seconds);

/// Counts how long nothing has moved. Look every interval(): silence is then told and given up less than a
/// quarter later than the limits say.
class Patience {
 public:
  using Duration = PatienceLimits::Duration;
  using Time = std::chrono::steady_clock::time_point;
  struct Verdict {
    Duration quiet{};
    bool report = false;
    bool give_up = false;
  };

  explicit Patience(PatienceLimits limits);
  [[nodiscard]] Duration interval() const { return interval_; }
  /// Something has moved, or the watch begins.
  void restart(Time now);
  /// Nothing has moved since the last call of either. A look that comes late counts as two intervals at most:
  /// a process that was suspended knows nothing of what the others did meanwhile.
  [[nodiscard]] Verdict look(Time now);

 private:
  PatienceLimits limits_;
  Duration interval_;
  Duration quiet_{};
  Duration told_{};
  Time last_look_;
};

}  // namespace slimpipe
