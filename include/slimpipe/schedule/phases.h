#pragma once
// The one expansion of an action into the steps a device takes for it. Validator, simulator, compile
// and executor all use it, so what is proved is what runs.

#include <cstdint>
#include <string_view>
#include <vector>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

enum class Phase : std::uint8_t {
  // forward, in this order
  kReceiveActivation,  ///< hidden states of the slice from the previous stage (not stage 0)
  kTakeActivation,     ///< instead, where that stage is on the same device: what it left there
  kEmbed,              ///< token embedding (stage 0)
  kPreAttention,       ///< layer: norm, QKV, RoPE; the slice's K,V block exists afterwards
  kAttention,          ///< layer: over the list of K,V blocks of slices 0..i
  kPostAttention,      ///< layer: output projection, residual, norm, feed-forward, residual
  kLoss,            ///< last stage: final norm, output layer, loss; in training their backward too, in one go
  kSendActivation,  ///< to the next stage (not the last)
  // backward, in this order
  kReceiveGradient,             ///< of the stage's output from the next stage (not the last)
  kTakeGradient,                ///< instead, where that stage is on the same device
  kPostAttentionBackwardInput,  ///< layer
  kAttentionBackward,           ///< layer: adds to dK,dV of slices 0..i; the slice's own become complete
  kPreAttentionBackwardInput,   ///< layer
  kBackwardWeight,              ///< layer: all weight gradients
  kEmbedBackward,               ///< stage 0
  kSendGradient,                ///< to the previous stage (not stage 0)
  kReleaseSlice,                ///< saved activations of the slice end here
  // the exchange of attention context, for each help of the action's slot
  kGatherKeys,   ///< owner: the range of K and V, in a backward also Q, into one message
  kSendKeys,     ///< to the helper
  kGatherQuery,  ///< owner, backward: delta; dO, lse and delta into one message for all its helpers
  kSendQuery,    ///< Q, or what kGatherQuery made; the receive of the result is posted with it
  kReceiveKeys,
  kReceiveQuery,
  kHelpAttention,          ///< helper: O and lse of the range
  kHelpAttentionBackward,  ///< helper: dQ and the range's dK and dV
  kSendResult,             ///< to the owner
  kReceiveResult,
  kMergeAttention,  ///< owner: O and lse of the range into those of the slice
  kMergeGradients,  ///< owner: adds dQ and the range's dK and dV
  // end of the step, of no action
  kCombineTiedGradients,  ///< sum of the two uses of a tied embedding
};
[[nodiscard]] std::string_view name_of(Phase phase);
[[nodiscard]] bool is_receive(Phase phase);
[[nodiscard]] bool is_send(Phase phase);
/// Whether the phase is a slice's own attention, forward or backward.
[[nodiscard]] bool is_attention(Phase phase);
/// Whether the phase is one of the exchange's.
[[nodiscard]] bool is_exchange(Phase phase);
/// Whether it is one that a helper does, not an owner.
[[nodiscard]] bool is_help(Phase phase);

struct LayerStep {
  Phase phase = Phase::kEmbed;
  int layer = -1;  ///< index within the chunk, -1 where the phase is not of one layer; of a helper's steps
                   ///< within the owner's chunk
  int peer = -1;   ///< of a communication: the device (pipeline rank) at its other end
  int help = -1;   ///< of an exchange phase but kGatherQuery: index into the slot's helps
  bool operator==(const LayerStep&) const = default;
};

/// Where a chunk stands in the model.
struct ChunkShape {
  int stage = 0;
  int stages = 1;
  int layers = 1;              ///< layers of this chunk
  bool previous_here = false;  ///< the previous stage is on the same device
  bool next_here = false;      ///< the next stage is
  int previous_device = -1;    ///< that holds the previous stage, -1: there is none
  int next_device = -1;
};

/// The steps of `action` on a chunk. `training` false: a forward-only run, whose slices keep only K and V
/// and whose last slice (slice == slices - 1) releases its microbatch.
///
/// A receive comes first in its action, a send comes after all computation; between stages of one device
/// there is no message, the later action takes what the earlier one left. Backward takes layers in
/// descending order. kBackward has each layer's kBackwardWeight right after its input part and ends in
/// kReleaseSlice. Of the split pair kBackwardInput has neither: kBackwardWeight has the weight steps and
/// the release. The embedding's gradient belongs to the input part, so that no gradient of hidden states
/// has to be kept for it.
[[nodiscard]] std::vector<LayerStep> expand(const Action& action, const ChunkShape& shape, int slices,
                                            bool training);

/// `steps`, the expansion of an action of `device` (nothing for kHelp), with the exchange of its slot, the
/// helps schedule.exchange.slots[arg], woven in.
///
/// An owner, in each layer: K and V leave, one layer ahead if the exchange is early (for the first layer at
/// the beginning of the action); Q leaves when it is there, the slice attends to what it keeps, and then
/// takes the results in ascending order of helpers. A helper computes for the owners, in their order, after
/// the attention of its own layer: its k-th layer to be computed goes with theirs. Owners' layers that the
/// helper has no match for come at the end of its action.
[[nodiscard]] std::vector<LayerStep> weave_exchange(const Schedule& schedule, int device,
                                                    const Action& action, const std::vector<LayerStep>& steps,
                                                    const std::vector<int>& stage_layers);

/// The expansions of all actions of one device, with their exchange. Those without one are made once: they
/// depend on kind and chunk, and in a forward-only run on whether the slice is the last.
class DeviceExpansions {
 public:
  /// Keeps references.
  DeviceExpansions(const Schedule& schedule, int device, const std::vector<int>& stage_layers);
  /// Valid until the next call.
  [[nodiscard]] const std::vector<LayerStep>& of(const Action& action);

 private:
  static constexpr int kKinds = 4;  ///< of actions with a slice
  const Schedule& schedule_;
  int device_;
  const std::vector<int>& stage_layers_;
  std::vector<std::vector<LayerStep>> steps_;  ///< [(chunk · kinds + kind) · 2 + last slice]
  std::vector<LayerStep> woven_;
};

/// The shape of a device's chunk. `stage_layers`: layers of each stage, empty for one each.
[[nodiscard]] ChunkShape shape_of(const Schedule& schedule, int device, int chunk,
                                  const std::vector<int>& stage_layers);

}  // namespace slimpipe::schedule
