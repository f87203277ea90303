#include "slimpipe/schedule/simulate.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/schedule/validate.h"

#include "schedule/execution.h"

namespace slimpipe::schedule {
namespace {

/// Most slices alive at once on a device, from forward to kReleaseSlice.
int peak_in_flight(const Schedule& schedule, int device) {
  int alive = 0;
  int peak = 0;
  for (const auto& action : schedule.devices[device]) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++alive);
    const auto steps =
        expand(action, shape_of(schedule, device, action, 1), schedule.spec.slices, schedule.training);
    const bool releases = steps.back().phase == Phase::kReleaseSlice;
    if (releases) alive -= schedule.training ? 1 : schedule.spec.slices;
  }
  return peak;
}

double idle_share(double busy, double whole) {
  return whole > 0 ? 1 - busy / whole : 0;
}

}  // namespace

CostModel uniform_cost(double forward, double backward, double latency) {
  // One step stands for its whole action: every forward has an attention of layer 0, every input part its
  // backward, every weight part a weight step.
  const auto step_cost = [=](int, const Action& action, const LayerStep& step) -> double {
    if (step.layer != 0) return 0;
    const double part = action.kind == ActionKind::kBackward ? backward : backward / 2;
    if (step.phase == Phase::kAttention) return forward;
    if (step.phase == Phase::kAttentionBackward) return part;
    if (step.phase == Phase::kBackwardWeight && action.kind == ActionKind::kBackwardWeight) return part;
    return 0;
  };
  return {.step = step_cost, .latency = latency, .layers_per_chunk = 1};
}

Simulation simulate(const Schedule& schedule, const CostModel& cost) {
  if (const auto found = validate(schedule); !found.empty())
    throw_error("cannot simulate this schedule: {}", fmt::join(found, "; "));
  const auto map = connect(schedule);
  Execution execution(schedule, map, cost, outstanding_sends(schedule.spec));
  execution.run();

  Simulation result;
  double busy = 0;
  for (const auto& run : execution.devices()) {
    result.devices.push_back(run.done);
    result.makespan = std::max(result.makespan, run.clock);
    busy += run.busy;
  }
  for (const auto& run : execution.devices())
    result.device_bubble.push_back(idle_share(run.busy, result.makespan));
  result.bubble = idle_share(busy, result.makespan * schedule.spec.pipeline);
  for (int device = 0; device < schedule.spec.pipeline; ++device)
    result.peak.push_back(peak_in_flight(schedule, device));
  result.worst_peak_fraction =
      static_cast<double>(*std::max_element(result.peak.begin(), result.peak.end())) /
      (double{1} * schedule.spec.slices * schedule.spec.virtual_stages);
  return result;
}

}  // namespace slimpipe::schedule
