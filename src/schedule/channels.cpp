#include "slimpipe/schedule/channels.h"

#include <algorithm>

#include "slimpipe/core/check.h"

#include "schedule/execution.h"

namespace slimpipe::schedule {

std::string_view name_of(Payload payload) {
  switch (payload) {
    case Payload::kActivation:
      return "activation";
    case Payload::kGradient:
      return "gradient";
    case Payload::kExchangeKeys:
      return "exchanged keys";
    case Payload::kExchangeQuery:
      return "exchanged query";
    case Payload::kExchangeResult:
      return "exchanged result";
  }
  throw_error("payload {} has no name", static_cast<int>(payload));
}

Payload payload_of(Phase phase) {
  switch (phase) {
    case Phase::kReceiveActivation:
    case Phase::kSendActivation:
      return Payload::kActivation;
    case Phase::kReceiveGradient:
    case Phase::kSendGradient:
      return Payload::kGradient;
    case Phase::kSendKeys:
    case Phase::kReceiveKeys:
      return Payload::kExchangeKeys;
    case Phase::kSendQuery:
    case Phase::kReceiveQuery:
      return Payload::kExchangeQuery;
    case Phase::kSendResult:
    case Phase::kReceiveResult:
      return Payload::kExchangeResult;
    default:
      throw_error("phase {} is no communication", name_of(phase));
  }
}

bool is_exchange(Payload payload) {
  return payload >= Payload::kExchangeKeys;
}

ChannelMap::Key ChannelMap::key_of(int device, const LayerStep& step) {
  const Payload payload = payload_of(step.phase);
  return is_send(step.phase) ? Key{device, step.peer, payload} : Key{step.peer, device, payload};
}

int ChannelMap::of_step(int device, const LayerStep& step) const {
  const auto found = index_.find(key_of(device, step));
  SLIMPIPE_CHECK(found != index_.end(), "no channel for \"{}\" of device {} with device {}",
                 name_of(step.phase), device, step.peer);
  return found->second;
}

int ChannelMap::add(int device, const LayerStep& step) {
  const Key key = key_of(device, step);
  const auto [entry, is_new] = index_.try_emplace(key, static_cast<int>(channels.size()));
  if (is_new) channels.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), {}, {}});
  return entry->second;
}

ChannelMap connect(const Schedule& schedule) {
  const std::vector<int> one_layer_each;
  ChannelMap map;
  for (int device = 0; device < std::ssize(schedule.devices); ++device) {
    DeviceExpansions expansions(schedule, device, one_layer_each);
    for (int index = 0; index < std::ssize(schedule.devices[device]); ++index) {
      for (const LayerStep& step : expansions.of(schedule.devices[device][index])) {
        if (is_receive(step.phase)) map.channels[map.add(device, step)].receives.push_back(index);
        if (is_send(step.phase)) map.channels[map.add(device, step)].sends.push_back(index);
      }
    }
  }
  return map;
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
      if (!is_exchange(map.channels[index].payload))
        outstanding[index] = std::max(outstanding[index], execution.most_unposted(index));
  }
  for (int index = 0; index < std::ssize(outstanding); ++index)
    if (!is_exchange(map.channels[index].payload)) map.channels[index].outstanding = outstanding[index];
  return {};
}

}  // namespace slimpipe::schedule
