#pragma once
// The messages of a schedule, read off the expansion of its actions.

#include <vector>

#include "slimpipe/schedule/phases.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

enum class Payload : std::uint8_t { kActivation, kGradient };
[[nodiscard]] std::string_view name_of(Payload payload);

/// A directed channel: message k is sent by action sends[k] of the source device and received by action
/// receives[k] of the destination device.
struct Channel {
  int source = 0;
  int destination = 0;
  Payload payload = Payload::kActivation;
  std::vector<int> sends;
  std::vector<int> receives;
};

struct ActionChannels {
  int receive = -1;  ///< index into ChannelMap::channels, -1: the action receives nothing
  int send = -1;
};

struct ChannelMap {
  std::vector<Channel> channels;
  std::vector<std::vector<ActionChannels>> of_action;  ///< [device][action]
};

/// Needs a schedule whose stages are placed and whose actions name existing chunks.
[[nodiscard]] ChannelMap connect(const Schedule& schedule);

/// The shape of the chunk that an action of `device` works on.
[[nodiscard]] ChunkShape shape_of(const Schedule& schedule, int device, const Action& action, int layers);

}  // namespace slimpipe::schedule
