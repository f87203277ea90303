#pragma once
// What a StageRunner keeps of slices and microbatches within a step.

#include <optional>
#include <vector>

#include "slimpipe/model/exchange_messages.h"
#include "slimpipe/runtime/stage_runner.h"

namespace slimpipe::runtime {

struct StageRunner::SliceState {
  std::vector<model::LayerSaved> layers;
  device::Buffer received;                     ///< message under way, [T, H] compute
  device::Buffer output;                       ///< of the chunk: sent on, or read by the head
  device::Buffer received_gradient;            ///< message under way
  device::Buffer gradient;                     ///< of what the next layer to go backward put out
  device::Buffer input_gradient;               ///< of the chunk's input: sent on, or read by the embedding
  std::vector<model::LayerBackward> backward;  ///< [layer], from its input part to its weight part
};

/// K,V blocks of a layer, slices 0..i, and the fp32 blocks of their gradients.
struct LayerKv {
  std::vector<device::KvBlock> blocks;
  std::vector<device::KvGradientBlock> gradients;
  std::vector<device::Buffer> gradient_buffers;
};

/// A help's messages, at either end: from its gathering or the post of its receive until it has gone or was
/// taken.
struct HelpState {
  model::KeysMessage keys;
  model::QueryMessage query;  ///< helper's end
  model::ResultMessage result;
};

struct StageRunner::ExchangeState {
  model::AttentionShape shape;
  std::vector<HelpState> helps;  ///< [Program::helps]
  // as owner
  std::vector<int> given;     ///< helps whose queries are sent and whose results are not merged
  model::QueryMessage query;  ///< of a backward, for all helpers
  int query_sends = 0;        ///< of it under way
};

struct StageRunner::MicrobatchState {
  std::vector<LayerKv> layers;
};

struct StageRunner::Chunk {
  ChunkPlacement placement;
  std::vector<model::DecoderLayer> layers;
  std::optional<model::OutputHead> head;
  std::vector<SliceState> slices;  ///< [microbatch · n + slice]
  std::vector<MicrobatchState> microbatches;
};

}  // namespace slimpipe::runtime
