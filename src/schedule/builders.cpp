// Builders: a device's list is its forward order and its backward order, merged by the length of the
// warm-up, or by the list scheduler. Kinds differ in nothing else.

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/schedule/schedule.h"

#include "schedule/list_scheduler.h"

namespace slimpipe::schedule {
namespace {

/// Appends the forwards of slices [first, end) of a microbatch in one chunk.
void append_slices(ActionQueue& order, int chunk, int microbatch, int first, int end) {
  for (int slice = first; slice < end; ++slice)
    order.push_back({.kind = ActionKind::kForward, .chunk = chunk, .microbatch = microbatch, .slice = slice});
}

/// Forwards of one microbatch in order. The backward order is the exact reverse.
ActionQueue microbatch_forwards(const Spec& spec, int microbatch) {
  ActionQueue order;
  order.reserve(static_cast<std::size_t>(spec.slices) * spec.virtual_stages);
  const int group = group_size(spec);
  for (int first = 0; first < spec.slices; first += group)
    for (int chunk = 0; chunk < spec.virtual_stages; ++chunk)
      append_slices(order, chunk, microbatch, first, first + group);
  return order;
}

/// Interleaved 1F1B: groups of p microbatches, within a group one chunk after the other.
ActionQueue interleaved_order(const Spec& spec, bool chunks_descend) {
  ActionQueue order;
  for (int first = 0; first < spec.microbatches; first += spec.pipeline)
    for (int i = 0; i < spec.virtual_stages; ++i)
      for (int microbatch = first; microbatch < first + spec.pipeline; ++microbatch)
        append_slices(order, chunks_descend ? spec.virtual_stages - 1 - i : i, microbatch, 0, 1);
  return order;
}

ActionQueue forward_order(const Spec& spec) {
  if (spec.kind == Kind::kInterleaved) return interleaved_order(spec, false);
  ActionQueue order;
  for (int microbatch = 0; microbatch < spec.microbatches; ++microbatch) {
    const auto actions = microbatch_forwards(spec, microbatch);
    order.insert(order.end(), actions.begin(), actions.end());
  }
  return order;
}

ActionQueue backward_order(const Spec& spec, ActionKind kind) {
  ActionQueue order;
  if (spec.kind == Kind::kInterleaved) {
    order = interleaved_order(spec, true);
  } else {
    for (int microbatch = 0; microbatch < spec.microbatches; ++microbatch) {
      const auto actions = microbatch_forwards(spec, microbatch);
      order.insert(order.end(), actions.rbegin(), actions.rend());
    }
  }
  for (auto& action : order) action.kind = kind;
  return order;
}

/// One queue a chunk, microbatches in order; later chunks first.
std::vector<ActionQueue> queues_by_chunk(const Spec& spec, ActionKind kind) {
  std::vector<ActionQueue> queues;
  for (int chunk = spec.virtual_stages - 1; chunk >= 0; --chunk) {
    ActionQueue& queue = queues.emplace_back();
    for (int microbatch = 0; microbatch < spec.microbatches; ++microbatch)
      queue.push_back({.kind = kind, .chunk = chunk, .microbatch = microbatch, .slice = 0});
  }
  return queues;
}

std::int64_t all_forwards(const Spec& spec) {
  return std::int64_t{spec.microbatches} * spec.slices * spec.virtual_stages;
}

/// Forwards of a device before its first backward, less the one of the first pair.
std::int64_t warmup(const Spec& spec, int device) {
  const std::int64_t devices_after = spec.pipeline - 1 - device;
  switch (spec.kind) {
    case Kind::kGpipe:
    case Kind::kTeraPipe:
      return all_forwards(spec);
    case Kind::kOneFOneB:
      return devices_after;
    case Kind::kInterleaved:
      return 2 * devices_after +
             std::int64_t{spec.virtual_stages - 1} * std::min(spec.pipeline, spec.microbatches);
    case Kind::kSlimPipe:
    case Kind::kSlimPipeZb:
      return std::int64_t{spec.slices} * spec.virtual_stages - 1 + spec.warmup_slope * devices_after;
    case Kind::kZbV:
    case Kind::kVHalf:
      break;
  }
  throw_error("{} has no warm-up of a fixed length", name_of(spec.kind));
}

std::vector<Action> merge(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                          std::int64_t warmup_forwards) {
  std::vector<Action> actions(forwards.begin(), forwards.begin() + warmup_forwards);
  actions.reserve(forwards.size() + backwards.size());
  auto backward = backwards.begin();
  for (auto forward = forwards.begin() + warmup_forwards; forward != forwards.end(); ++forward) {
    actions.push_back(*forward);
    actions.push_back(*backward++);
  }
  actions.insert(actions.end(), backward, backwards.end());
  return actions;
}

/// Each device's list of a kind whose order is a warm-up and pairs.
std::vector<std::vector<Action>> merged(const Spec& spec) {
  const auto forwards = forward_order(spec);
  const auto backwards = backward_order(spec, ActionKind::kBackward);
  std::vector<std::vector<Action>> devices;
  for (int device = 0; device < spec.pipeline; ++device)
    devices.push_back(merge(forwards, backwards, std::min(all_forwards(spec), warmup(spec, device))));
  return devices;
}

/// Interleaved 1F1B with the microbatches rounded up to whole groups, and then without those that do not
/// exist. A smaller last group would go from chunk to chunk faster than around the devices: where it is alone
/// in pairs with backwards, devices would wait for each other.
std::vector<std::vector<Action>> merged_interleaved(const Spec& spec) {
  Spec whole = spec;
  whole.microbatches = (spec.microbatches + spec.pipeline - 1) / spec.pipeline * spec.pipeline;
  auto devices = merged(whole);
  for (auto& actions : devices)
    std::erase_if(actions, [&](const Action& action) { return action.microbatch >= spec.microbatches; });
  return devices;
}

/// A schedule with its stages placed and no actions yet.
Schedule place_stages(const Spec& spec, bool training) {
  if (const auto found = problems(spec); !found.empty())
    throw_input_error("cannot build this schedule: {}", fmt::join(found, "; "));
  Schedule schedule{.spec = spec, .training = training};
  schedule.stage_of.resize(spec.pipeline);
  const bool vee = placement_of(spec.kind) == Placement::kVee;
  for (int device = 0; device < spec.pipeline; ++device)
    for (int chunk = 0; chunk < spec.virtual_stages; ++chunk)
      schedule.stage_of[device].push_back(vee && chunk == 1 ? 2 * spec.pipeline - 1 - device
                                                            : chunk * spec.pipeline + device);
  return schedule;
}

ListRules list_rules(const Spec& spec, bool training) {
  ListRules rules;
  const auto most = [](std::int64_t limit) {
    return [limit](int) { return static_cast<int>(std::min<std::int64_t>(limit, 1 << 30)); };
  };
  if (spec.kind == Kind::kSlimPipeZb) {
    rules.forwards = {forward_order(spec)};
    rules.backwards = {backward_order(spec, ActionKind::kBackwardInput)};
    rules.in_flight = [spec](int device) {
      return static_cast<int>(std::min(all_forwards(spec), warmup(spec, device) + 1));
    };
    rules.held = most(std::min(all_forwards(spec), warmup(spec, 0) + 1) +
                      std::int64_t{spec.virtual_stages} * (spec.pipeline - 1));
  } else {
    rules.forwards = queues_by_chunk(spec, ActionKind::kForward);
    rules.backwards = queues_by_chunk(spec, ActionKind::kBackwardInput);
    rules.in_flight = most(all_forwards(spec));
    rules.held = most(spec.kind == Kind::kZbV ? 2 * spec.pipeline : spec.pipeline + 2);
  }
  if (!training) rules.backwards.clear();
  return rules;
}

/// The shortest of what the list scheduler makes of the ways to keep memory free for later chunks: none is
/// best at all sizes.
std::vector<std::vector<Action>> list_scheduled(const Schedule& placed) {
  ListRules rules = list_rules(placed.spec, placed.training);
  std::optional<ListSchedule> best;
  for (const int reserve : {0, 1, ListRules::kForLaterChunks}) {
    rules.reserve = reserve;
    auto found = list_schedule(placed, rules);
    if (found && (!best || found->slots < best->slots)) best = std::move(found);
  }
  SLIMPIPE_CHECK(best.has_value(), "{} finds no order within its memory", name_of(placed.spec.kind));
  return std::move(best->devices);
}

}  // namespace

Schedule build(const Spec& spec) {
  auto schedule = place_stages(spec, true);
  if (splits_backward(spec.kind))
    schedule.devices = list_scheduled(schedule);
  else
    schedule.devices = spec.kind == Kind::kInterleaved ? merged_interleaved(spec) : merged(spec);
  return schedule;
}

Schedule build_forward_only(const Spec& spec) {
  auto schedule = place_stages(spec, false);
  if (placement_of(spec.kind) == Placement::kVee) {
    schedule.devices = list_scheduled(schedule);
    return schedule;
  }
  auto forwards = forward_order(spec);
  std::erase_if(forwards, [&](const Action& action) { return action.microbatch >= spec.microbatches; });
  schedule.devices.assign(spec.pipeline, forwards);
  return schedule;
}

}  // namespace slimpipe::schedule
