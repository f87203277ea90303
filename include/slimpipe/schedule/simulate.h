#pragma once
// The time line of a schedule under a cost model, and what can be read off it.

#include <functional>
#include <string>
#include <vector>

#include "slimpipe/schedule/phases.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// Time of one step of an action; zero for steps that cost nothing. Any unit.
using StepCost = std::function<double(int device, const Action&, const LayerStep&)>;

struct CostModel {
  StepCost step;
  double latency = 0;  ///< from the end of a send to when its receive can complete
  int layers_per_chunk = 1;
};
/// F and B units an action, whatever is in it.
[[nodiscard]] CostModel uniform_cost(double forward = 1, double backward = 2, double latency = 0);

struct TimedAction {
  Action action;
  double start = 0;
  double end = 0;
};

struct Simulation {
  std::vector<std::vector<TimedAction>> devices;
  double makespan = 0;
  double bubble = 0;                  ///< idle share of devices × makespan, SPEC's "bubble fraction"
  std::vector<double> device_bubble;  ///< idle share of each device's makespan
  std::vector<int> peak;  ///< most slices in flight per device (forward done or running, backward not ended)
  /// Worst device's peak in units of Ma/p: peak / (n·v).
  double worst_peak_fraction = 0;
};

/// Throws Error if the schedule deadlocks (validate says where).
[[nodiscard]] Simulation simulate(const Schedule& schedule, const CostModel& cost);

/// {"name","p","v","m","n","placement","split_w","stage_of","devices","peak","bubble","makespan"};
/// devices hold [kind, chunk, stage, microbatch, slice], kind "F", "B" or "W", zero-based.
[[nodiscard]] std::string to_json(const Schedule& schedule, const Simulation& simulation);
/// A devices × time grid for a terminal, with bubble, makespan and peaks below; cut at `width` columns
/// with a note where it does not fit.
[[nodiscard]] std::string draw(const Schedule& schedule, const Simulation& simulation, int width);

}  // namespace slimpipe::schedule
