// Builders: a device's list is its forward order and its backward order, merged by the length of the
// warm-up. Kinds differ in nothing else.

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {
namespace {

/// Forwards of one microbatch in order. The backward order is the exact reverse.
std::vector<Action> microbatch_forwards(const Spec& spec, int microbatch) {
  std::vector<Action> actions;
  actions.reserve(spec.slices);
  for (int slice = 0; slice < spec.slices; ++slice)
    actions.push_back({.kind = ActionKind::kForward, .chunk = 0, .microbatch = microbatch, .slice = slice});
  return actions;
}

std::vector<Action> forward_order(const Spec& spec) {
  std::vector<Action> order;
  for (int microbatch = 0; microbatch < spec.microbatches; ++microbatch) {
    const auto actions = microbatch_forwards(spec, microbatch);
    order.insert(order.end(), actions.begin(), actions.end());
  }
  return order;
}

std::vector<Action> backward_order(const Spec& spec) {
  std::vector<Action> order;
  for (int microbatch = 0; microbatch < spec.microbatches; ++microbatch) {
    const auto actions = microbatch_forwards(spec, microbatch);
    order.insert(order.end(), actions.rbegin(), actions.rend());
  }
  for (auto& action : order) action.kind = ActionKind::kBackward;
  return order;
}

/// Forwards of a device before its first backward, less the one of the first pair.
std::int64_t warmup(const Spec& spec, int device) {
  const std::int64_t devices_after = spec.pipeline - 1 - device;
  const std::int64_t all = std::int64_t{spec.microbatches} * spec.slices * spec.virtual_stages;
  switch (spec.kind) {
    case Kind::kGpipe:
    case Kind::kTeraPipe:
      return all;
    case Kind::kOneFOneB:
      return std::min(all, devices_after);
    case Kind::kSlimPipe:
      return std::min(
          all, std::int64_t{spec.slices} * spec.virtual_stages - 1 + spec.warmup_slope * devices_after);
  }
  throw_error("schedule kind {} has no builder", static_cast<int>(spec.kind));
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

/// A schedule with its stages placed and no actions yet.
Schedule place_stages(const Spec& spec, bool training) {
  if (const auto found = problems(spec); !found.empty())
    throw_input_error("cannot build this schedule: {}", fmt::join(found, "; "));
  Schedule schedule{.spec = spec, .training = training};
  schedule.stage_of.resize(spec.pipeline);
  for (int device = 0; device < spec.pipeline; ++device)
    for (int chunk = 0; chunk < spec.virtual_stages; ++chunk)
      schedule.stage_of[device].push_back(chunk * spec.pipeline + device);
  return schedule;
}

}  // namespace

Schedule build(const Spec& spec) {
  auto schedule = place_stages(spec, true);
  const auto forwards = forward_order(spec);
  const auto backwards = backward_order(spec);
  for (int device = 0; device < spec.pipeline; ++device)
    schedule.devices.push_back(merge(forwards, backwards, warmup(spec, device)));
  return schedule;
}

Schedule build_forward_only(const Spec& spec) {
  auto schedule = place_stages(spec, false);
  schedule.devices.assign(spec.pipeline, forward_order(spec));
  return schedule;
}

}  // namespace slimpipe::schedule
