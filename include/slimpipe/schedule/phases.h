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
  kEmbed,              ///< token embedding (stage 0)
  kPreAttention,       ///< layer: norm, QKV, RoPE; the slice's K,V block exists afterwards
  kAttention,          ///< layer: over the list of K,V blocks of slices 0..i
  kPostAttention,      ///< layer: output projection, residual, norm, feed-forward, residual
  kLoss,            ///< last stage: final norm, output layer, loss; in training their backward too, in one go
  kSendActivation,  ///< to the next stage (not the last)
  // backward, in this order
  kReceiveGradient,             ///< of the stage's output from the next stage (not the last)
  kPostAttentionBackwardInput,  ///< layer
  kAttentionBackward,           ///< layer: adds to dK,dV of slices 0..i; the slice's own become complete
  kPreAttentionBackwardInput,   ///< layer
  kBackwardWeight,              ///< layer: all weight gradients
  kEmbedBackward,               ///< stage 0
  kSendGradient,                ///< to the previous stage (not stage 0)
  kReleaseSlice,                ///< saved activations of the slice end here
};
[[nodiscard]] std::string_view name_of(Phase phase);
[[nodiscard]] bool is_communication(Phase phase);

struct LayerStep {
  Phase phase = Phase::kEmbed;
  int layer = -1;  ///< index within the chunk, -1 where the phase is not of one layer
  bool operator==(const LayerStep&) const = default;
};

/// Where a chunk stands in the model.
struct ChunkShape {
  int stage = 0;
  int stages = 1;
  int layers = 1;  ///< layers of this chunk
};

/// The steps of `action` on a chunk. `training` false: a forward-only run, whose slices keep only K and V
/// and whose last slice (slice == slices - 1) releases its microbatch.
///
/// A receive comes first in its action, a send comes after all computation. Backward takes layers in
/// descending order. kBackward has each layer's kBackwardWeight right after its input part and ends in
/// kReleaseSlice. Of the split pair kBackwardInput has neither: kBackwardWeight has the weight steps and
/// the release. The embedding's gradient belongs to the input part, so that no gradient of hidden states
/// has to be kept for it.
[[nodiscard]] std::vector<LayerStep> expand(const Action& action, const ChunkShape& shape, int slices,
                                            bool training);

}  // namespace slimpipe::schedule
