#include "slimpipe/schedule/phases.h"

#include "slimpipe/core/check.h"

namespace slimpipe::schedule {
namespace {

using Steps = std::vector<LayerStep>;

void append_forward(Steps& steps, const ChunkShape& shape) {
  if (shape.stage == 0)
    steps.push_back({Phase::kEmbed});
  else if (shape.previous_here)
    steps.push_back({Phase::kTakeActivation});
  else
    steps.push_back({.phase = Phase::kReceiveActivation, .peer = shape.previous_device});
  for (int layer = 0; layer < shape.layers; ++layer)
    for (const Phase phase : {Phase::kPreAttention, Phase::kAttention, Phase::kPostAttention})
      steps.push_back({phase, layer});
  if (shape.stage == shape.stages - 1)
    steps.push_back({Phase::kLoss});
  else if (!shape.next_here)
    steps.push_back({.phase = Phase::kSendActivation, .peer = shape.next_device});
}

void append_backward(Steps& steps, const ChunkShape& shape, bool with_weights) {
  if (shape.next_here)
    steps.push_back({Phase::kTakeGradient});
  else if (shape.stage < shape.stages - 1)
    steps.push_back({.phase = Phase::kReceiveGradient, .peer = shape.next_device});
  for (int layer = shape.layers - 1; layer >= 0; --layer) {
    for (const Phase phase :
         {Phase::kPostAttentionBackwardInput, Phase::kAttentionBackward, Phase::kPreAttentionBackwardInput})
      steps.push_back({phase, layer});
    if (with_weights) steps.push_back({Phase::kBackwardWeight, layer});
  }
  if (shape.stage == 0)
    steps.push_back({Phase::kEmbedBackward});
  else if (!shape.previous_here)
    steps.push_back({.phase = Phase::kSendGradient, .peer = shape.previous_device});
}

void append_weights(Steps& steps, const ChunkShape& shape) {
  for (int layer = shape.layers - 1; layer >= 0; --layer) steps.push_back({Phase::kBackwardWeight, layer});
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kReceiveActivation:
      return "receive activation";
    case Phase::kTakeActivation:
      return "take activation";
    case Phase::kEmbed:
      return "embed";
    case Phase::kPreAttention:
      return "pre-attention";
    case Phase::kAttention:
      return "attention";
    case Phase::kPostAttention:
      return "post-attention";
    case Phase::kLoss:
      return "loss";
    case Phase::kSendActivation:
      return "send activation";
    case Phase::kReceiveGradient:
      return "receive gradient";
    case Phase::kTakeGradient:
      return "take gradient";
    case Phase::kPostAttentionBackwardInput:
      return "post-attention backward";
    case Phase::kAttentionBackward:
      return "attention backward";
    case Phase::kPreAttentionBackwardInput:
      return "pre-attention backward";
    case Phase::kBackwardWeight:
      return "weight backward";
    case Phase::kEmbedBackward:
      return "embed backward";
    case Phase::kSendGradient:
      return "send gradient";
    case Phase::kReleaseSlice:
      return "release slice";
    case Phase::kGatherKeys:
      return "gather keys";
    case Phase::kSendKeys:
      return "send keys";
    case Phase::kGatherQuery:
      return "gather query";
    case Phase::kSendQuery:
      return "send query";
    case Phase::kReceiveKeys:
      return "receive keys";
    case Phase::kReceiveQuery:
      return "receive query";
    case Phase::kHelpAttention:
      return "help attention";
    case Phase::kHelpAttentionBackward:
      return "help attention backward";
    case Phase::kSendResult:
      return "send result";
    case Phase::kReceiveResult:
      return "receive result";
    case Phase::kMergeAttention:
      return "merge attention";
    case Phase::kMergeGradients:
      return "merge gradients";
    case Phase::kCombineTiedGradients:
      return "combine tied gradients";
  }
  throw_error("phase {} has no name", static_cast<int>(phase));
}

bool is_receive(Phase phase) {
  switch (phase) {
    case Phase::kReceiveActivation:
    case Phase::kReceiveGradient:
    case Phase::kReceiveKeys:
    case Phase::kReceiveQuery:
    case Phase::kReceiveResult:
      return true;
    default:
      return false;
  }
}

bool is_send(Phase phase) {
  switch (phase) {
    case Phase::kSendActivation:
    case Phase::kSendGradient:
    case Phase::kSendKeys:
    case Phase::kSendQuery:
    case Phase::kSendResult:
      return true;
    default:
      return false;
  }
}

bool is_attention(Phase phase) {
  return phase == Phase::kAttention || phase == Phase::kAttentionBackward;
}

bool is_exchange(Phase phase) {
  return phase >= Phase::kGatherKeys && phase <= Phase::kMergeGradients;
}

bool is_help(Phase phase) {
  return phase >= Phase::kReceiveKeys && phase <= Phase::kSendResult;
}

std::vector<LayerStep> expand(const Action& action, const ChunkShape& shape, int slices, bool training) {
  SLIMPIPE_CHECK(shape.stage >= 0 && shape.stage < shape.stages, "stage {} of {}", shape.stage, shape.stages);
  SLIMPIPE_CHECK(training || action.kind == ActionKind::kForward, "{} in a forward-only run",
                 to_string(action));
  Steps steps;
  switch (action.kind) {
    case ActionKind::kForward:
      append_forward(steps, shape);
      if (!training && action.slice == slices - 1) steps.push_back({Phase::kReleaseSlice});
      break;
    case ActionKind::kBackward:
      append_backward(steps, shape, true);
      steps.push_back({Phase::kReleaseSlice});
      break;
    case ActionKind::kBackwardInput:
      append_backward(steps, shape, false);
      break;
    case ActionKind::kBackwardWeight:
      append_weights(steps, shape);
      steps.push_back({Phase::kReleaseSlice});
      break;
    case ActionKind::kHelp:
      break;
  }
  return steps;
}

DeviceExpansions::DeviceExpansions(const Schedule& schedule, int device, const std::vector<int>& stage_layers)
    : schedule_(schedule), device_(device), stage_layers_(stage_layers) {
  const int slices = schedule.spec.slices;
  for (int chunk = 0; chunk < std::ssize(schedule.stage_of[device]); ++chunk) {
    const ChunkShape shape = shape_of(schedule, device, chunk, stage_layers);
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward, ActionKind::kBackwardInput,
                                  ActionKind::kBackwardWeight})
      for (const int slice : {-1, slices - 1}) {
        const bool exists = schedule.training || kind == ActionKind::kForward;
        const Action action{.kind = kind, .chunk = chunk, .microbatch = 0, .slice = slice};
        steps_.push_back(exists ? expand(action, shape, slices, schedule.training)
                                : std::vector<LayerStep>());
      }
  }
}

const std::vector<LayerStep>& DeviceExpansions::of(const Action& action) {
  const bool last = action.slice == schedule_.spec.slices - 1;
  const auto index = (action.chunk * kKinds + static_cast<int>(action.kind)) * 2 + (last ? 1 : 0);
  if (action.kind != ActionKind::kHelp && action.arg < 0) return steps_[index];
  woven_ = weave_exchange(schedule_, device_, action,
                          action.kind == ActionKind::kHelp ? std::vector<LayerStep>() : steps_[index],
                          stage_layers_);
  return woven_;
}

ChunkShape shape_of(const Schedule& schedule, int device, int chunk, const std::vector<int>& stage_layers) {
  const int stage = schedule.stage_of[device][chunk];
  const int stages = schedule.spec.stages();
  const int previous = stage > 0 ? schedule.device_of(stage - 1) : -1;
  const int next = stage < stages - 1 ? schedule.device_of(stage + 1) : -1;
  return {.stage = stage,
          .stages = stages,
          .layers = stage_layers.empty() ? 1 : stage_layers.at(stage),
          .previous_here = previous == device,
          .next_here = next == device,
          .previous_device = previous,
          .next_device = next};
}

}  // namespace slimpipe::schedule
