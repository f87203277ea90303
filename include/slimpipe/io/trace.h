#pragma once
// Chrome / Perfetto trace files ("Trace Event Format", JSON object form).

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace slimpipe::io {

/// What one span of a device shows as.
enum class TraceLane : std::uint8_t {
  kSteps,     ///< what the device does, one span after the other
  kMessages,  ///< messages under way, from post to completion; they overlap one another and the steps
};

/// `category` is a literal: the event keeps its address alone.
struct TraceEvent {
  std::string name;  ///< "F0.1.3 attention, layer 2"
  /// "forward", "backward", "communication" (steps that post and wait), "reduction" (over the devices),
  /// "optimizer"; "message" on the lane of messages.
  const char* category;
  int track = 0;        ///< device index
  double start_us = 0;  ///< on one clock for all tracks of the process
  double duration_us = 0;
  TraceLane lane = TraceLane::kSteps;
};

/// The time of an event. The steady clock's epoch is the same in all processes of a host, so their traces
/// line up.
[[nodiscard]] inline double trace_time_us(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

/// Writes the events: spans of steps on tracks named "device i", messages as asynchronous events. Throws
/// Error where writing fails.
void write_trace(const std::filesystem::path& path, const std::vector<TraceEvent>& events, int process);

}  // namespace slimpipe::io
