// The time line of a schedule with its attention context exchange, slot by slot.

#include <algorithm>
#include <numeric>

#include "slimpipe/schedule/exchange.h"

namespace slimpipe::schedule {
namespace {

class CoupledExecution {
 public:
  CoupledExecution(const Schedule& schedule, const ExchangePlan& plan, const SliceCost& cost)
      : schedule_(schedule),
        plan_(plan),
        cost_(cost),
        free_(schedule.spec.pipeline),
        busy_(schedule.spec.pipeline),
        units_(static_cast<std::size_t>(schedule.spec.microbatches) * schedule.spec.slices),
        forward_end_(units_ * schedule.spec.stages()),
        backward_end_(units_ * schedule.spec.stages()) {}

  CoupledRun run() {
    // What an action needs starts in an earlier slot.
    for (const ExchangeSlot& slot : plan_.slots) run_slot(slot);
    CoupledRun result;
    result.makespan = *std::max_element(free_.begin(), free_.end());
    const auto idle = [&](double busy, double devices) {
      return result.makespan > 0 ? 1 - busy / (devices * result.makespan) : 0;
    };
    for (const double busy : busy_) result.device_bubble.push_back(idle(busy, 1));
    result.bubble = idle(std::accumulate(busy_.begin(), busy_.end(), 0.0), schedule_.spec.pipeline);
    return result;
  }

 private:
  struct Part {
    bool in_slot = false;
    double start = 0;
    double duration = 0;
    double end = 0;
  };

  void run_slot(const ExchangeSlot& slot) {
    const double attention = cost_.attention * (slot.forward ? 1 : cost_.backward_attention);
    const double linear = cost_.linear * (slot.forward ? 1 : cost_.backward_linear);
    const auto work = work_with_helps(slot);
    std::vector<Part> parts(schedule_.spec.pipeline);
    for (std::size_t i = 0; i < slot.loads.size(); ++i) {
      const SlotLoad& load = slot.loads[i];
      Part& part = parts[load.device];
      part.in_slot = load.action >= 0 || work[i] > 0;
      part.start = std::max(free_[load.device], load.action >= 0 ? arrival(slot, load) : 0);
      part.duration = attention * static_cast<double>(work[i]) + (load.action >= 0 ? linear : 0);
      part.end = part.start + part.duration;
    }
    const auto time_of = [&](const Help& help) {
      return attention * static_cast<double>(help.keys * slot.queries);
    };
    for (const Help& help : slot.helps)
      parts[help.helper].end = std::max(parts[help.helper].end, parts[help.owner].start + time_of(help));
    for (const Help& help : slot.helps)
      parts[help.owner].end = std::max(parts[help.owner].end, parts[help.helper].end);
    for (const SlotLoad& load : slot.loads) {
      const Part& part = parts[load.device];
      if (!part.in_slot) continue;
      free_[load.device] = part.end;
      busy_[load.device] += part.duration;
      if (load.action >= 0) end_of(slot, load, 0) = part.end;
    }
  }

  /// When the action's stage, or the one `step` after it in the slot's direction, ends the action's slice.
  double& end_of(const ExchangeSlot& slot, const SlotLoad& load, int step) {
    const Action& action = schedule_.devices[load.device][load.action];
    const int stage = schedule_.stage_of[load.device][action.chunk] + step;
    const std::size_t index =
        units_ * stage + static_cast<std::size_t>(action.microbatch) * schedule_.spec.slices + action.slice;
    return (slot.forward ? forward_end_ : backward_end_)[index];
  }

  /// When what the action receives is there.
  double arrival(const ExchangeSlot& slot, const SlotLoad& load) {
    const int stage = schedule_.stage_of[load.device][schedule_.devices[load.device][load.action].chunk];
    if (slot.forward) return stage > 0 ? end_of(slot, load, -1) : 0;
    return stage < schedule_.spec.stages() - 1 ? end_of(slot, load, 1) : 0;
  }

  const Schedule& schedule_;
  const ExchangePlan& plan_;
  const SliceCost& cost_;
  std::vector<double> free_;  ///< [device] -> end of what it has done
  std::vector<double> busy_;
  std::size_t units_;
  std::vector<double> forward_end_;  ///< [stage · units + unit]
  std::vector<double> backward_end_;
};

}  // namespace

CostModel slice_cost_model(const SliceCost& cost, std::int64_t slice_tokens) {
  const auto step_cost = [=](int, const Action& action, const LayerStep& step) -> double {
    const auto tokens = static_cast<double>(slice_tokens);
    const double work = tokens * tokens * action.slice + tokens * (tokens + 1) / 2;
    switch (step.phase) {
      case Phase::kAttention:
        return cost.linear + cost.attention * work;
      case Phase::kAttentionBackward: {
        const double share = action.kind == ActionKind::kBackward ? 1 : 0.5;
        return share * cost.backward_linear * cost.linear + cost.backward_attention * cost.attention * work;
      }
      case Phase::kBackwardWeight:
        return action.kind == ActionKind::kBackwardWeight ? cost.backward_linear * cost.linear / 2 : 0;
      default:
        return 0;
    }
  };
  return {.step = step_cost, .latency = 0, .stage_layers = {}};
}

CoupledRun run_coupled(const Schedule& schedule, const ExchangePlan& plan, const SliceCost& cost) {
  return CoupledExecution(schedule, plan, cost).run();
}

}  // namespace slimpipe::schedule
