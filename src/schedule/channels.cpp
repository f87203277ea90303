#include "schedule/channels.h"

#include <map>
#include <tuple>

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
    for (int device = 0; device < std::ssize(schedule_.devices); ++device)
      for (int index = 0; index < std::ssize(schedule_.devices[device]); ++index)
        map_.of_action[device].push_back(connect_action(device, index));
    return std::move(map_);
  }

 private:
  ActionChannels connect_action(int device, int index) {
    const auto& action = schedule_.devices[device][index];
    const auto shape = shape_of(schedule_, device, action, 1);
    ActionChannels channels;
    for (const auto& step : expand(action, shape, schedule_.spec.slices, schedule_.training))
      switch (step.phase) {
        case Phase::kReceiveActivation:
          channels.receive = channel(device_of_stage_[shape.stage - 1], device, Payload::kActivation);
          break;
        case Phase::kReceiveGradient:
          channels.receive = channel(device_of_stage_[shape.stage + 1], device, Payload::kGradient);
          break;
        case Phase::kSendActivation:
          channels.send = channel(device, device_of_stage_[shape.stage + 1], Payload::kActivation);
          break;
        case Phase::kSendGradient:
          channels.send = channel(device, device_of_stage_[shape.stage - 1], Payload::kGradient);
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

ChunkShape shape_of(const Schedule& schedule, int device, const Action& action, int layers) {
  return {
      .stage = schedule.stage_of[device][action.chunk], .stages = schedule.spec.stages(), .layers = layers};
}

ChannelMap connect(const Schedule& schedule) {
  return Connector(schedule).connect();
}

}  // namespace slimpipe::schedule
