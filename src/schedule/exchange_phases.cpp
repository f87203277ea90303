// The steps of the attention context exchange among those of an action.

#include <algorithm>

#include "slimpipe/schedule/phases.h"

namespace slimpipe::schedule {
namespace {

using Steps = std::vector<LayerStep>;

bool is_forward(const Help& help) {
  return help.action.kind == ActionKind::kForward;
}

/// The help steps of a device for the owners of its slot.
class Helper {
 public:
  Helper(const Schedule& schedule, int device, const std::vector<Help>& helps,
         const std::vector<int>& stage_layers)
      : helps_(helps) {
    for (int index = 0; index < std::ssize(helps); ++index) {
      const Help& help = helps[index];
      if (help.helper != device) continue;
      const int stage = schedule.stage_of[help.owner][help.action.chunk];
      given_.push_back({index, stage_layers.empty() ? 1 : stage_layers.at(stage)});
      layers_ = std::max(layers_, given_.back().layers);
    }
  }

  /// Most layers of an owner.
  [[nodiscard]] int layers() const { return layers_; }

  /// For the k-th layer, in the order of computation, of those owners that have one.
  void append(Steps& steps, int k) const {
    for (const auto& [index, layers] : given_)
      if (k < layers) append_help(steps, index, is_forward(helps_[index]) ? k : layers - 1 - k);
  }

 private:
  struct Given {
    int help = 0;
    int layers = 0;  ///< of the owner's chunk
  };

  void append_help(Steps& steps, int index, int layer) const {
    const Help& help = helps_[index];
    const Phase attention = is_forward(help) ? Phase::kHelpAttention : Phase::kHelpAttentionBackward;
    steps.push_back({Phase::kReceiveKeys, layer, help.owner, index});
    steps.push_back({Phase::kReceiveQuery, layer, help.owner, index});
    steps.push_back({.phase = attention, .layer = layer, .help = index});
    steps.push_back({Phase::kSendResult, layer, help.owner, index});
  }

  const std::vector<Help>& helps_;
  std::vector<Given> given_;
  int layers_ = 0;
};

/// The steps with which a device gives attention away.
class Owner {
 public:
  Owner(int device, const std::vector<Help>& helps, bool forward) : helps_(helps), forward_(forward) {
    for (int index = 0; index < std::ssize(helps); ++index)
      if (helps[index].owner == device) given_.push_back(index);
  }

  [[nodiscard]] bool gives() const { return !given_.empty(); }

  void send_keys(Steps& steps, int layer) const {
    for (const int index : given_) {
      steps.push_back({.phase = Phase::kGatherKeys, .layer = layer, .help = index});
      steps.push_back({Phase::kSendKeys, layer, helps_[index].helper, index});
    }
  }

  void send_queries(Steps& steps, int layer) const {
    if (!forward_) steps.push_back({Phase::kGatherQuery, layer});
    for (const int index : given_) steps.push_back({Phase::kSendQuery, layer, helps_[index].helper, index});
  }

  void take_results(Steps& steps, int layer) const {
    const Phase merge = forward_ ? Phase::kMergeAttention : Phase::kMergeGradients;
    for (const int index : given_) {
      steps.push_back({Phase::kReceiveResult, layer, helps_[index].helper, index});
      steps.push_back({.phase = merge, .layer = layer, .help = index});
    }
  }

 private:
  const std::vector<Help>& helps_;
  std::vector<int> given_;  ///< ascending helpers
  bool forward_;
};

Steps weave_owner(const Owner& owner, const Steps& steps, bool early) {
  std::vector<int> layers;  // in the order of computation
  for (const LayerStep& step : steps)
    if (is_attention(step.phase)) layers.push_back(step.layer);
  Steps woven;
  if (early) owner.send_keys(woven, layers.front());
  std::size_t done = 0;
  for (const LayerStep& step : steps) {
    if (!is_attention(step.phase)) {
      woven.push_back(step);
      continue;
    }
    if (!early) owner.send_keys(woven, step.layer);
    owner.send_queries(woven, step.layer);
    woven.push_back(step);
    owner.take_results(woven, step.layer);
    if (++done < layers.size() && early) owner.send_keys(woven, layers[done]);
  }
  return woven;
}

Steps weave_helper(const Helper& helper, const Steps& steps) {
  Steps woven;
  int done = 0;
  for (const LayerStep& step : steps) {
    woven.push_back(step);
    if (is_attention(step.phase)) helper.append(woven, done++);
  }
  while (done < helper.layers()) helper.append(woven, done++);
  return woven;
}

}  // namespace

std::vector<LayerStep> weave_exchange(const Schedule& schedule, int device, const Action& action,
                                      const std::vector<LayerStep>& steps,
                                      const std::vector<int>& stage_layers) {
  const std::vector<Help>& helps = schedule.exchange.slots.at(action.arg);
  const Owner owner(device, helps, action.kind == ActionKind::kForward);
  if (owner.gives()) return weave_owner(owner, steps, schedule.exchange.early);
  return weave_helper(Helper(schedule, device, helps, stage_layers), steps);
}

}  // namespace slimpipe::schedule
