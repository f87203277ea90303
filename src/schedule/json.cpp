// The schedule as JSON, for other tools.

#include <nlohmann/json.hpp>

#include "slimpipe/schedule/simulate.h"

namespace slimpipe::schedule {
namespace {

using Json = nlohmann::ordered_json;

const char* json_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return "B";
    case ActionKind::kBackwardWeight:
      return "W";
    case ActionKind::kHelp:
      return "H";
  }
  return "";
}

bool has_split_backward(const Schedule& schedule) {
  for (const auto& actions : schedule.devices)
    for (const auto& action : actions)
      if (action.kind == ActionKind::kBackwardWeight) return true;
  return false;
}

Json device_actions(const Schedule& schedule, int device) {
  auto list = Json::array();
  for (const auto& action : schedule.devices[device]) {
    if (action.kind == ActionKind::kHelp) continue;  // computes no slice
    list.push_back({json_kind(action.kind), action.chunk, schedule.stage_of[device][action.chunk],
                    action.microbatch, action.slice});
  }
  return list;
}

}  // namespace

std::string to_json(const Schedule& schedule, const Simulation& simulation) {
  const Spec& spec = schedule.spec;
  Json json;
  json["name"] = name_of(spec.kind);
  json["p"] = spec.pipeline;
  json["v"] = spec.virtual_stages;
  json["m"] = spec.microbatches;
  json["n"] = spec.slices;
  json["placement"] = name_of(placement_of(spec.kind));
  json["split_w"] = has_split_backward(schedule);
  json["stage_of"] = schedule.stage_of;
  json["devices"] = Json::array();
  for (int device = 0; device < spec.pipeline; ++device)
    json["devices"].push_back(device_actions(schedule, device));
  json["peak"] = simulation.peak;
  json["bubble"] = simulation.bubble;
  json["makespan"] = simulation.makespan;
  return json.dump();
}

}  // namespace slimpipe::schedule
