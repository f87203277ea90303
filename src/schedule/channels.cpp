#include "slimpipe/schedule/channels.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "schedule/execution.h"

namespace slimpipe::schedule {
namespace {

class Connector {
 public:
  explicit Connector(const Schedule& schedule) : schedule_(schedule) {
    device_of_stage_.resize(schedule.spec.stages());
    for (int device = 0; device < std::ssize(schedule.stage_of); ++device)
      for (const int stage : schedule.stage_of[device]) device_of_stage_[stage] = device;
  }

  ChannelMap connect() {
    map_.of_action.resize(schedule_.devices.size());
    for (int device = 0; device < std::ssize(schedule_.devices); ++device) {
      const DeviceExpansions expansions(schedule_, device, {});
      for (int index = 0; index < std::ssize(schedule_.devices[device]); ++index)
        map_.of_action[device].push_back(connect_action(device, index, expansions));
    }
    return std::move(map_);
  }

 private:
  ActionChannels connect_action(int device, int index, const DeviceExpansions& expansions) {
    const auto& action = schedule_.devices[device][index];
    const int stage = schedule_.stage_of[device][action.chunk];
    ActionChannels channels;
    for (const auto& step : expansions.of(action)) switch (step.phase) {
        case Phase::kReceiveActivation:
          channels.receive = channel(device_of_stage_[stage - 1], device, Payload::kActivation);
          break;
        case Phase::kReceiveGradient:
          channels.receive = channel(device_of_stage_[stage + 1], device, Payload::kGradient);
          break;
        case Phase::kSendActivation:
          channels.send = channel(device, device_of_stage_[stage + 1], Payload::kActivation);
          break;
        case Phase::kSendGradient:
          channels.send = channel(device, device_of_stage_[stage - 1], Payload::kGradient);
          break;
        default:
          break;
      }
    if (channels.receive >= 0) map_.channels[channels.receive].receives.push_back(index);
    if (channels.send >= 0) map_.channels[channels.send].sends.push_back(index);
    return channels;
  }

  int channel(int source, int destination, Payload payload) {
    const auto [entry, is_new] =
        index_.try_emplace({source, destination, payload}, static_cast<int>(map_.channels.size()));
    if (is_new) map_.channels.push_back({source, destination, payload, {}, {}});
    return entry->second;
  }

  const Schedule& schedule_;
  std::vector<int> device_of_stage_;
  std::map<std::tuple<int, int, Payload>, int> index_;
  ChannelMap map_;
};

}  // namespace

std::string_view name_of(Payload payload) {
  return payload == Payload::kActivation ? "activation" : "gradient";
}

ChannelMap connect(const Schedule& schedule) {
  return Connector(schedule).connect();
}

std::vector<std::string> plan_outstanding_sends(const Schedule& schedule, ChannelMap& map) {
  const Spec& spec = schedule.spec;
  const bool steep = spec.kind == Kind::kSlimPipe && spec.warmup_slope > 2;
  std::vector<int> outstanding(map.channels.size(), steep ? spec.warmup_slope : 1);
  for (Channel& channel : map.channels) channel.outstanding = kUnboundedSends;
  constexpr UniformCost kUnits;
  for (const double latency : {0.0, (kUnits.forward + kUnits.backward_input + kUnits.backward_weight) / 2}) {
    const auto cost = uniform_cost({.latency = latency});
    Execution execution(schedule, map, cost);
    execution.run();
    if (!execution.finished()) return execution.waits();
    for (int index = 0; index < std::ssize(outstanding); ++index)
      outstanding[index] = std::max(outstanding[index], execution.most_unposted(index));
  }
  for (int index = 0; index < std::ssize(outstanding); ++index)
    map.channels[index].outstanding = outstanding[index];
  return {};
}

}  // namespace slimpipe::schedule
