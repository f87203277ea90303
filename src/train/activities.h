#pragma once
// What a device does in a step besides its program, for the watchdog and the trace.

#include <chrono>
#include <string>
#include <vector>

#include "slimpipe/io/trace.h"
#include "slimpipe/runtime/engine.h"

namespace slimpipe::train {

/// Each activity begins where the one before it ends; the last is ended by end(). Appends an event for each.
class Activities {
 public:
  Activities(runtime::DeviceContext& context, std::vector<io::TraceEvent>& events)
      : context_(context), events_(events) {}
  /// `activity` is a literal, here and below.
  void update(const char* activity) { begin(activity, "optimizer", false); }
  /// Over all devices: only waits for the others.
  void reduce(const char* activity) { begin(activity, "reduction", true); }
  void end() {
    if (activity_ == nullptr) return;
    const double now = io::trace_time_us(std::chrono::steady_clock::now());
    events_.push_back({activity_, category_, context_.progress.device(), start_us_, now - start_us_});
    activity_ = nullptr;
  }

 private:
  void begin(const char* activity, const char* category, bool waits) {
    end();
    context_.progress.doing(activity, waits);
    activity_ = activity;
    category_ = category;
    start_us_ = io::trace_time_us(std::chrono::steady_clock::now());
  }

  runtime::DeviceContext& context_;
  std::vector<io::TraceEvent>& events_;
  const char* activity_ = nullptr;
  const char* category_ = nullptr;
  double start_us_ = 0;
};

}  // namespace slimpipe::train
