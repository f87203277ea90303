#include "slimpipe/io/trace.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

namespace slimpipe::io {
namespace {

std::string json_quoted(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A metadata event: the name a viewer shows for a process or a thread.
std::string name_event(std::string_view kind, int process, int track, std::string_view name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", kind, process,
                     track, json_quoted(name));
}

/// A complete event: one span of one track.
std::string span_event(const TraceEvent& event, int process) {
  return fmt::format(R"({{"name":{},"cat":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                     json_quoted(event.name), json_quoted(event.category), process, event.track,
                     event.start_us, event.duration_us);
}

/// A pair of asynchronous events: a span that may overlap others of its track.
std::string message_events(const TraceEvent& event, int process, std::size_t id) {
  const auto one = [&](char phase, double at_us) {
    return fmt::format(R"({{"name":{},"cat":{},"ph":"{}","id":{},"pid":{},"tid":{},"ts":{:.3f}}})",
                       json_quoted(event.name), json_quoted(event.category), phase, id, process, event.track,
                       at_us);
  };
  return one('b', event.start_us) + ",\n" + one('e', event.start_us + event.duration_us);
}

}  // namespace

void write_trace(const std::filesystem::path& path, const std::vector<TraceEvent>& events, int process) {
  std::set<int> tracks;
  for (const TraceEvent& event : events) {
    SLIMPIPE_CHECK(std::isfinite(event.start_us) && std::isfinite(event.duration_us), "trace event {}",
                   event.name);
    tracks.insert(event.track);
  }

  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  text += name_event("process_name", process, 0, fmt::format("process {}", process));
  for (const int track : tracks) {
    text += ",\n" + name_event("thread_name", process, track, fmt::format("device {}", track));
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    const bool message = events[i].lane == TraceLane::kMessages;
    text += ",\n" + (message ? message_events(events[i], process, i) : span_event(events[i], process));
  }
  text += "\n]}\n";
  write_text_atomically(path, text);
}

}  // namespace slimpipe::io
