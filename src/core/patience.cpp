#include "slimpipe/core/patience.h"

#include <algorithm>

#include "slimpipe/core/check.h"

namespace slimpipe {

PatienceLimits patience_of(double report_seconds) {
  PatienceLimits limits;
  if (report_seconds <= 0) {
    limits.report_every = {};
    return limits;
  }
  const auto every =
      std::chrono::duration_cast<PatienceLimits::Duration>(std::chrono::duration<double>(report_seconds));
  limits.report_every = std::max<PatienceLimits::Duration>(every, std::chrono::milliseconds(1));
  limits.give_up_after = 10 * limits.report_every;
  return limits;
}

Patience::Patience(PatienceLimits limits) : limits_(limits) {
  SLIMPIPE_CHECK(limits.give_up_after.count() > 0 && limits.report_every.count() >= 0,
                 "silence of {} ns to report, of {} ns to give up", limits.report_every.count(),
                 limits.give_up_after.count());
  const Duration shortest = limits.report_every.count() > 0
                                ? std::min(limits.report_every, limits.give_up_after)
                                : limits.give_up_after;
  interval_ = std::max(shortest / 5, Duration(1));
}

void Patience::restart(Time now) {
  quiet_ = {};
  told_ = {};
  last_look_ = now;
}

Patience::Verdict Patience::look(Time now) {
  quiet_ += std::min(now - last_look_, 2 * interval_);
  last_look_ = now;
  const bool report = limits_.report_every.count() > 0 && quiet_ >= told_ + limits_.report_every;
  if (report) told_ = quiet_ - quiet_ % limits_.report_every;
  return {.quiet = quiet_, .report = report, .give_up = quiet_ >= limits_.give_up_after};
}

}  // namespace slimpipe
