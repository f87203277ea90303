#pragma once
// Chrome / Perfetto trace files ("Trace Event Format", JSON object form).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace slimpipe::io {

struct TraceEvent {
  std::string name;      ///< "F m0 s3 layer 2 attention"
  const char* category;  ///< "forward", "backward", "communication", "optimizer"
  int track = 0;         ///< device index
  double start_us = 0;   ///< on one clock for all tracks of the process
  double duration_us = 0;
};

/// Writes the events; tracks are named "device i". Returns nothing; throws Error where writing fails.
void write_trace(const std::filesystem::path& path, const std::vector<TraceEvent>& events, int process);

}  // namespace slimpipe::io
