#pragma once
// The time line of a schedule under a cost model, and what can be read off it.

#include <functional>
#include <string>
#include <vector>

#include "slimpipe/schedule/phases.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// Time of one step of an action; zero for steps that cost nothing, never negative. Any unit.
using StepCost = std::function<double(int device, const Action&, const LayerStep&)>;

struct CostModel {
  StepCost step;
  double latency = 0;  ///< from the end of a send to when its receive can complete
  int layers_per_chunk = 1;
};
/// F and B units an action, whatever is in it; a split backward has half of B in either part.
[[nodiscard]] CostModel uniform_cost(double forward = 1, double backward = 2, double latency = 0);

struct TimedAction {
  Action action;
  double start = 0;  ///< its input is there and the device is free
  double end = 0;    ///< its send is on its way
};

struct Simulation {
  std::vector<std::vector<TimedAction>> devices;
  double makespan = 0;
  double bubble = 0;                  ///< idle share of devices × makespan
  std::vector<double> device_bubble;  ///< idle share of each device's makespan
  /// Most slices in flight per device: forward done or running, kReleaseSlice not reached. A forward-only
  /// run holds a microbatch's slices until its last.
  std::vector<int> peak;
  /// Worst device's peak in units of Ma/p: peak / (n·v).
  double worst_peak_fraction = 0;
};

/// Every device runs its actions in order, each step as soon as its message has come and the rule on
/// outstanding sends (validate.h) lets it. Throws Error with validate's findings if there are any.
[[nodiscard]] Simulation simulate(const Schedule& schedule, const CostModel& cost);

/// {"name","p","v","m","n","placement","split_w","stage_of","devices","peak","bubble","makespan"};
/// devices hold [kind, chunk, stage, microbatch, slice], kind "F", "B" or "W", zero-based; where split_w,
/// "B" is the input part. placement is "loop": stage g on device g mod p.
[[nodiscard]] std::string to_json(const Schedule& schedule, const Simulation& simulation);
/// A devices × time grid for a terminal, with bubble, makespan and peaks below; '.' is idle time. Cells
/// carry kind, microbatch and slice ("F1.3") where `width` columns have room for them; otherwise a
/// forward is its microbatch's digit, a backward its letter, and what does not fit is cut with a note.
[[nodiscard]] std::string draw(const Schedule& schedule, const Simulation& simulation, int width);

}  // namespace slimpipe::schedule
