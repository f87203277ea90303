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
  double latency = 0;             ///< from the end of a send to when its receive can complete
  std::vector<int> stage_layers;  ///< layers of each stage; empty: one each
};
/// Times of the action of an average stage. A backward that is not split takes the sum of its parts.
struct UniformCost {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double latency = 0;
};
/// Each action costs as much as any other of its kind, but for its stage's share of the layers.
[[nodiscard]] CostModel uniform_cost(const UniformCost& cost = {}, const std::vector<int>& stage_layers = {});

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
  /// Most slices of chunks in flight per device: forward done or running, kReleaseSlice not reached. A
  /// forward-only run holds a microbatch's slices until its last.
  std::vector<int> peak;
  /// Most of them per device whose backward for inputs is done and whose weight gradients are not: they keep
  /// the inputs and output gradients of their linears. Zeros where backwards are not split.
  std::vector<int> peak_deferred;
  /// Worst device's peak in units of Ma/p: peak / (n·v).
  double worst_peak_fraction = 0;
};

/// Every device runs its actions in order, each step as soon as its message has come and the rule on
/// outstanding sends (channels.h) lets it. Throws Error with validate's findings if there are any.
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
