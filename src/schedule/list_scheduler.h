#pragma once
// Orders the actions of all devices slot by slot, where a rule of their order would be too simple: split
// backwards whose weight gradients fill what would be idle, within a limit of memory.

#include <functional>
#include <optional>
#include <vector>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// Actions that each device runs in this order, whatever it runs between them; the same for all devices.
using ActionQueue = std::vector<Action>;

/// A unit is one slice of one chunk on a device.
struct ListRules {
  /// Of two forwards (or backwards) that could run, the one of the earlier queue does.
  std::vector<ActionQueue> forwards;
  std::vector<ActionQueue> backwards;        ///< kBackwardInput; empty where not training
  std::function<int(int device)> in_flight;  ///< most units from forward to backward for inputs
  std::function<int(int device)> held;       ///< most units from forward to weight gradient
  /// Units that a forward of chunk 0 leaves free below `held`, so that later chunks can go on and give memory
  /// back. kForLaterChunks: one for each slice that is through chunk 0 and not yet through the last chunk.
  static constexpr int kForLaterChunks = -1;
  int reserve = 0;
};

/// The action lists of all devices, built in slots of equal forwards, backwards for inputs and weight
/// gradients without latency: whoever can run a backward does, else a forward, else a weight gradient.
/// Nothing where the rules leave no device anything to do before the end. `placed` has its stages placed.
struct ListSchedule {
  std::vector<std::vector<Action>> devices;
  int slots = 0;
};
[[nodiscard]] std::optional<ListSchedule> list_schedule(const Schedule& placed, const ListRules& rules);

}  // namespace slimpipe::schedule
