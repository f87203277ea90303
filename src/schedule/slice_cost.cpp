// Costs of slices whose attention grows with the prefix that they see.

#include <memory>

#include "slimpipe/schedule/exchange.h"

namespace slimpipe::schedule {
namespace {

/// (query, key) pairs that `device` attends to itself in an action.
double own_work(std::int64_t slice_tokens, const HelpTable& exchange, int device, const Action& action) {
  const auto tokens = static_cast<double>(slice_tokens);
  double work = tokens * tokens * action.slice + tokens * (tokens + 1) / 2;
  if (action.arg < 0) return work;
  for (const Help& help : exchange.slots[action.arg])
    if (help.owner == device) work -= tokens * static_cast<double>(help.keys);
  return work;
}

double help_work(const HelpTable& exchange, const Action& action, const LayerStep& step) {
  const Help& help = exchange.slots[action.arg][step.help];
  return static_cast<double>(exchange.slice_tokens) * static_cast<double>(help.keys);
}

}  // namespace

CostModel slice_cost_model(const SliceCost& cost, std::int64_t slice_tokens, const HelpTable& exchange) {
  const auto step_cost = [cost, slice_tokens, exchange = std::make_shared<HelpTable>(exchange)](
                             int device, const Action& action, const LayerStep& step) -> double {
    const double backward_attention = cost.backward_attention * cost.attention;
    switch (step.phase) {
      case Phase::kAttention:
        return cost.attention * own_work(slice_tokens, *exchange, device, action);
      case Phase::kPostAttention:
        return cost.linear;
      case Phase::kAttentionBackward:
        return backward_attention * own_work(slice_tokens, *exchange, device, action);
      case Phase::kPostAttentionBackwardInput:
      case Phase::kBackwardWeight:
        return cost.backward_linear / 2 * cost.linear;
      case Phase::kHelpAttention:
        return cost.attention * help_work(*exchange, action, step);
      case Phase::kHelpAttentionBackward:
        return backward_attention * help_work(*exchange, action, step);
      default:
        return 0;
    }
  };
  return {.step = step_cost, .latency = 0, .stage_layers = {}};
}

}  // namespace slimpipe::schedule
