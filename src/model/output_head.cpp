#include "slimpipe/model/output_head.h"

#include <algorithm>

#include "model/operator_calls.h"
#include "model/tensor_buffer.h"

namespace slimpipe::model {
namespace {

/// Logits of one chunk: 2^24 of them are 64 MiB in fp32. Fewer tokens would make the output layer's
/// weight gradient, [V, H] read and written once a chunk, the bottleneck.
constexpr std::int64_t kChunkLogits = std::int64_t{1} << 24;
constexpr std::int64_t kMinChunkTokens = 64;
constexpr std::int64_t kMaxChunkTokens = 2048;

/// Memory of one chunk, used again by every chunk of a slice.
struct ChunkMemory {
  device::Buffer buffer;
  Tensor normed;    ///< [C, H] compute
  Tensor rstd;      ///< [C] fp32
  Tensor logits;    ///< [C, V] fp32
  Tensor d_logits;  ///< [C, V] compute: in fp32 the logits themselves
  Tensor d_normed;  ///< [C, H] compute
};

ChunkMemory allocate_chunk(device::Arena& arena, const config::ModelConfig& model, DType compute,
                           std::int64_t tokens, bool backward) {
  ChunkMemory chunk;
  const Tensor hidden = shape_of(compute, {tokens, model.hidden});
  const bool separate_gradient = backward && compute != DType::kF32;
  chunk.buffer = allocate_tensors(
      arena, device::Scope::kWorkspace, "chunk of logits",
      {{chunk.normed, hidden},
       {chunk.rstd, shape_of(DType::kF32, {tokens})},
       {chunk.logits, shape_of(DType::kF32, {tokens, model.vocabulary})},
       {chunk.d_logits, shape_of(compute, {separate_gradient ? tokens : 0, model.vocabulary})},
       {chunk.d_normed, shape_of(compute, {backward ? tokens : 0, model.hidden})}});
  if (backward && !separate_gradient) chunk.d_logits = chunk.logits;
  return chunk;
}

}  // namespace

OutputHead::OutputHead(const config::ModelConfig& model, DType compute, HeadTensors weights)
    : model_(model), compute_(compute), weights_(weights) {}

std::int64_t OutputHead::chunk_tokens() const {
  const std::int64_t tokens = kChunkLogits / model_.vocabulary / kMinChunkTokens * kMinChunkTokens;
  return std::clamp(tokens, kMinChunkTokens, kMaxChunkTokens);
}

void OutputHead::loss(const device::ExecutionContext& context, const SliceRef& slice, Tensor x,
                      Tensor targets, Tensor loss_sum, const std::optional<HeadBackward>& backward) const {
  const std::int64_t tokens = slice.valid_tokens();
  device::Operators& operators = context.operators;
  device::Stream& stream = context.stream;
  if (backward && tokens < slice.tokens) operators.zero(stream, backward->d_x.rows(tokens, slice.tokens));
  if (tokens == 0) return;
  const ChunkMemory memory =
      allocate_chunk(context.arena, model_, compute_, std::min(tokens, chunk_tokens()), backward.has_value());
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_tokens()) {
    const std::int64_t end = std::min(begin + chunk_tokens(), tokens);
    const std::int64_t count = end - begin;
    const Tensor chunk_x = x.rows(begin, end);
    const Tensor normed = memory.normed.rows(0, count);
    const Tensor rstd = memory.rstd.rows(0, count);
    const Tensor logits = memory.logits.rows(0, count);
    operators.rms_norm_forward(stream, chunk_x, weights_.norm, static_cast<float>(model_.norm_epsilon),
                               normed, rstd);
    run_gemm(context, {.a = normed, .b = weights_.output, .c = logits, .transpose_b = true});
    const Tensor d_logits = backward ? memory.d_logits.rows(0, count) : Tensor();
    operators.cross_entropy(stream, logits, targets.rows(begin, end),
                            backward ? backward->gradient_scale : 0.0F, loss_sum, d_logits);
    if (!backward) continue;
    const Tensor d_normed = memory.d_normed.rows(0, count);
    run_gemm(context, {.a = d_logits,
                       .b = normed,
                       .c = backward->gradients.output,
                       .transpose_a = true,
                       .accumulate = true});
    run_gemm(context, {.a = d_logits, .b = weights_.output, .c = d_normed});
    run_rms_norm_backward(context, d_normed, chunk_x, weights_.norm, rstd, Tensor(),
                          backward->d_x.rows(begin, end), backward->gradients.norm);
  }
}

}  // namespace slimpipe::model
