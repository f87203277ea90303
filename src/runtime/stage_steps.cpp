// The compute steps of StageRunner: one function a phase.

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/stage_runner.h"

#include "runtime/key_ranges.h"
#include "runtime/stage_state.h"

namespace slimpipe::runtime {

using device::Buffer;
using device::Scope;
using schedule::Phase;

void StageRunner::run(const Step& step, device::Stream& stream) {
  const Context context{device_.arena(), stream, device_.operators()};
  if (step.phase == Phase::kCombineTiedGradients) return combine_tied_gradients(context);
  if (schedule::is_exchange(step.phase)) return run_exchange(context, step);
  Chunk& chunk = chunks_[step.action.chunk];
  switch (step.phase) {
    case Phase::kTakeActivation:
      return take_activation(step, chunk);
    case Phase::kTakeGradient:
      return take_gradient(step, chunk);
    case Phase::kEmbed:
      return embed(context, step);
    case Phase::kPreAttention:
      return pre_attention(context, step, chunk);
    case Phase::kAttention:
      return attention(context, step, chunk);
    case Phase::kPostAttention:
      return post_attention(context, step, chunk);
    case Phase::kLoss:
      return loss(context, step, chunk);
    case Phase::kPostAttentionBackwardInput:
      return post_attention_backward(context, step, chunk);
    case Phase::kAttentionBackward:
      return attention_backward(context, step, chunk);
    case Phase::kPreAttentionBackwardInput:
      return pre_attention_backward(context, step, chunk);
    case Phase::kBackwardWeight:
      return backward_weight(context, step, chunk);
    case Phase::kEmbedBackward:
      return embed_backward(context, step);
    case Phase::kReleaseSlice:
      return release(step, chunk);
    default:
      throw_error("\"{}\" is not a compute step", describe(step));
  }
}

void StageRunner::take_activation(const Step& step, const Chunk& chunk) {
  take_input(state(step.action), std::move(state_at(chunk.placement.stage - 1, step.action).output));
}

void StageRunner::take_gradient(const Step& step, const Chunk& chunk) {
  state(step.action).gradient = std::move(state_at(chunk.placement.stage + 1, step.action).input_gradient);
}

void StageRunner::embed(const Context& context, const Step& step) {
  model::LayerSaved& saved = state(step.action).layers.front();
  saved.x_part = Buffer(context.arena, Scope::kSavedActivations, hidden_tensor(nullptr), "embeddings");
  saved.x = hidden_tensor(saved.x_part.data());
  const Tensor tokens =
      token_row(inputs_, step.action.microbatch, step.action.slice * slice_tokens_, slice_tokens_);
  context.operators.embedding_forward(context.stream, tokens, store_.embedding_weight(), saved.x);
}

void StageRunner::pre_attention(const Context& context, const Step& step, Chunk& chunk) {
  const model::SliceRef slice = slice_ref(context, step.action);
  model::LayerSaved& saved = state(step.action).layers[step.layer];
  const model::DecoderLayer& layer = chunk.layers[step.layer];
  layer.allocate_saved(context, slice, saved);
  layer.pre_attention(context, slice, saved);
  chunk.microbatches[step.action.microbatch].layers[step.layer].blocks.push_back(saved.kv);
}

void StageRunner::attention(const Context& context, const Step& step, Chunk& chunk) {
  model::LayerSaved& saved = state(step.action).layers[step.layer];
  const LayerKv& kv = layer_kv(step);
  SLIMPIPE_CHECK(std::ssize(kv.blocks) == step.action.slice + 1, "{} K,V blocks at slice {}",
                 kv.blocks.size(), step.action.slice);
  std::vector<device::KvBlock> blocks;
  for (const BlockRows& rows : kept_rows(kv.blocks)) blocks.push_back(part_of(kv.blocks[rows.index], rows));
  chunk.layers[step.layer].attention(context, slice_ref(context, step.action), saved, blocks);
}

void StageRunner::post_attention(const Context& context, const Step& step, Chunk& chunk) {
  SliceState& slice = state(step.action);
  model::LayerSaved& saved = slice.layers[step.layer];
  Tensor out;
  if (step.layer + 1 < static_cast<int>(chunk.layers.size())) {
    model::LayerSaved& next = slice.layers[step.layer + 1];
    next.x_part = Buffer(context.arena, Scope::kSavedActivations, hidden_tensor(nullptr), "layer input");
    next.x = out = hidden_tensor(next.x_part.data());
  } else {
    const Scope scope = chunk.placement.last() ? Scope::kWorkspace : Scope::kTransfer;
    slice.output = Buffer(context.arena, scope, hidden_tensor(nullptr), "stage output");
    out = hidden_tensor(slice.output.data());
  }
  chunk.layers[step.layer].post_attention(context, slice_ref(context, step.action), saved, out);
  if (!program_->training) {  // only K and V are read again
    saved.x_part.reset();
    saved.input_part.reset();
    saved.weight_part.reset();
  }
}

void StageRunner::loss(const Context& context, const Step& step, Chunk& chunk) {
  SliceState& slice = state(step.action);
  const schedule::Action& action = step.action;
  const Tensor targets = token_row(targets_, action.microbatch, action.slice * slice_tokens_, slice_tokens_);
  const std::int64_t slot = std::int64_t{action.microbatch} * program_->spec.slices + action.slice;
  const Tensor loss_sum(static_cast<double*>(losses_.data()) + slot, DType::kF64, {1});
  std::optional<model::HeadBackward> backward;
  if (program_->training) {
    slice.gradient =
        Buffer(context.arena, Scope::kSavedActivations, hidden_tensor(nullptr), "gradient of the output");
    backward = {.d_x = hidden_tensor(slice.gradient.data()),
                .gradients = {store_.final_norm_gradient(), store_.head_gradient()},
                .gradient_scale = gradient_scale_};
  }
  chunk.head->loss(context, slice_ref(context, action), hidden_tensor(slice.output.data()), targets, loss_sum,
                   backward);
  slice.output.reset();
}

void StageRunner::post_attention_backward(const Context& context, const Step& step, Chunk& chunk) {
  SliceState& slice = state(step.action);
  slice.backward.resize(chunk.layers.size());
  model::LayerBackward& backward = slice.backward[step.layer];
  backward.gradients = store_.layer_gradients(chunk.placement.first_layer + step.layer);
  backward.d_out_part = std::move(slice.gradient);
  backward.d_out = hidden_tensor(backward.d_out_part.data());
  chunk.layers[step.layer].post_attention_backward_input(context, slice_ref(context, step.action),
                                                         slice.layers[step.layer], backward);
}

void StageRunner::attention_backward(const Context& context, const Step& step, Chunk& chunk) {
  SliceState& slice = state(step.action);
  const model::DecoderLayer& layer = chunk.layers[step.layer];
  LayerKv& kv = layer_kv(step);
  if (kv.gradients.empty()) {  // the last slice's backward writes dK, dV of all slices
    for (std::size_t i = 0; i < kv.blocks.size(); ++i) {
      kv.gradients.push_back(
          layer.allocate_kv_gradient(context, slice_tokens_, kv.gradient_buffers.emplace_back()));
    }
  }
  model::LayerSaved& saved = slice.layers[step.layer];
  std::vector<device::KvBlock> blocks;
  std::vector<device::KvGradientBlock> gradients;
  for (const BlockRows& rows : kept_rows(kv.blocks)) {
    blocks.push_back(part_of(kv.blocks[rows.index], rows));
    gradients.push_back(part_of(kv.gradients[rows.index], rows));
  }
  layer.attention_backward(context, slice_ref(context, step.action), saved, slice.backward[step.layer],
                           blocks, gradients);
  kv.blocks.pop_back();  // its last reader
  saved.kv_part.reset();
}

void StageRunner::pre_attention_backward(const Context& context, const Step& step, Chunk& chunk) {
  SliceState& slice = state(step.action);
  LayerKv& kv = layer_kv(step);
  model::LayerSaved& saved = slice.layers[step.layer];
  const bool message = step.layer == 0 && !chunk.placement.first();
  slice.input_gradient = Buffer(context.arena, message ? Scope::kTransfer : Scope::kWorkspace,
                                hidden_tensor(nullptr), "gradient of the layer input");
  chunk.layers[step.layer].pre_attention_backward_input(context, slice_ref(context, step.action), saved,
                                                        slice.backward[step.layer], kv.gradients.back(),
                                                        hidden_tensor(slice.input_gradient.data()));
  kv.gradients.pop_back();
  kv.gradient_buffers.pop_back();
  chunk.layers[step.layer].free_after_input_gradients(saved);
  if (step.action.kind == schedule::ActionKind::kBackwardInput) {
    model::DecoderLayer::defer(saved, slice.backward[step.layer]);
  }
  if (step.layer > 0) slice.gradient = std::move(slice.input_gradient);
}

void StageRunner::backward_weight(const Context& context, const Step& step, Chunk& chunk) {
  SliceState& slice = state(step.action);
  model::LayerSaved& saved = slice.layers[step.layer];
  chunk.layers[step.layer].backward_weight(context, slice_ref(context, step.action), saved,
                                           slice.backward[step.layer]);
  chunk.layers[step.layer].free_after_weight_gradients(saved);
  slice.backward[step.layer] = {};
}

void StageRunner::embed_backward(const Context& context, const Step& step) {
  SliceState& slice = state(step.action);
  const Tensor tokens =
      token_row(inputs_, step.action.microbatch, step.action.slice * slice_tokens_, slice_tokens_);
  context.operators.embedding_backward(context.stream, tokens, hidden_tensor(slice.input_gradient.data()),
                                       store_.embedding_gradient());
  slice.input_gradient.reset();
}

void StageRunner::release(const Step& step, Chunk& chunk) {
  if (program_->training) {  // each part went with its last reader
    state(step.action).layers = std::vector<model::LayerSaved>();
    state(step.action).backward = std::vector<model::LayerBackward>();
    return;
  }
  for (LayerKv& kv : chunk.microbatches[step.action.microbatch].layers) kv.blocks.clear();
  for (int i = 0; i <= step.action.slice; ++i) {
    schedule::Action action = step.action;
    action.slice = i;
    state(action).layers = std::vector<model::LayerSaved>();
  }
}

}  // namespace slimpipe::runtime
