#include "slimpipe/schedule/simulate.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>

#include "slimpipe/core/check.h"

#include "schedule/execution.h"
#include "schedule/proof.h"

namespace slimpipe::schedule {
namespace {

/// Most slices at once of a device, from forward to kReleaseSlice, and of those the most that wait for their
/// weight gradients alone.
struct Peaks {
  int alive = 0;
  int deferred = 0;
};

Peaks peaks_of(const Schedule& schedule, int device) {
  Peaks now;
  Peaks most;
  for (const auto& action : schedule.devices[device]) {
    switch (action.kind) {
      case ActionKind::kForward:
        most.alive = std::max(most.alive, ++now.alive);
        if (!schedule.training && action.slice == schedule.spec.slices - 1) now.alive -= schedule.spec.slices;
        break;
      case ActionKind::kBackward:
        --now.alive;
        break;
      case ActionKind::kBackwardInput:
        most.deferred = std::max(most.deferred, ++now.deferred);
        break;
      case ActionKind::kBackwardWeight:
        --now.deferred;
        --now.alive;
        break;
      case ActionKind::kHelp:
        break;
    }
  }
  return most;
}

double idle_share(double busy, double whole) {
  return whole > 0 ? (whole - busy) / whole : 0;
}

}  // namespace

CostModel uniform_cost(const UniformCost& cost, const std::vector<int>& stage_layers) {
  const double layers = std::accumulate(stage_layers.begin(), stage_layers.end(), 0.0);
  const double share = stage_layers.empty() ? 1 : static_cast<double>(stage_layers.size()) / layers;
  // One step of a layer stands for all of it: a forward has an attention, an input part its backward, a
  // weight part a weight step.
  const auto step_cost = [=](int, const Action& action, const LayerStep& step) -> double {
    switch (step.phase) {
      case Phase::kAttention:
        return share * cost.forward;
      case Phase::kAttentionBackward:
        return share * (action.kind == ActionKind::kBackward ? cost.backward_input + cost.backward_weight
                                                             : cost.backward_input);
      case Phase::kBackwardWeight:
        return action.kind == ActionKind::kBackwardWeight ? share * cost.backward_weight : 0;
      default:
        return 0;
    }
  };
  return {.step = step_cost, .latency = cost.latency, .stage_layers = stage_layers};
}

Simulation simulate(const Schedule& schedule, const CostModel& cost) {
  const auto [findings, map] = prove(schedule);
  if (!findings.empty()) throw_error("cannot simulate this schedule: {}", fmt::join(findings, "; "));
  Execution execution(schedule, map, cost);
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
  for (int device = 0; device < schedule.spec.pipeline; ++device) {
    const Peaks peaks = peaks_of(schedule, device);
    result.peak.push_back(peaks.alive);
    result.peak_deferred.push_back(peaks.deferred);
  }
  result.worst_peak_fraction =
      static_cast<double>(*std::max_element(result.peak.begin(), result.peak.end())) /
      (double{1} * schedule.spec.slices * schedule.spec.virtual_stages);
  return result;
}

}  // namespace slimpipe::schedule
