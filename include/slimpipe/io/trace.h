#pragma once
// Chrome / Perfetto trace files ("Trace Event Format", JSON object form).

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
  std::string name;      ///< "F0.1.3 attention, layer 2"
  const char* category;  ///< "forward", "backward", "communication", "optimizer"
  int track = 0;         ///< device index
  double start_us = 0;   ///< on one clock for all tracks of the process
  double duration_us = 0;
  TraceLane lane = TraceLane::kSteps;
};

/// Writes the events: spans of steps on tracks named "device i", messages as asynchronous events. Throws
/// Error where writing fails.
void write_trace(const std::filesystem::path& path, const std::vector<TraceEvent>& events, int process);

}  // namespace slimpipe::io
