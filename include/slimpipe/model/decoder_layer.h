#pragma once
// One Llama decoder layer with explicit forward and backward over one slice, in three parts each, so that
// a schedule can put the exchange of attention context between them.
//
//   pre_attention    n1 = norm(x);  q, k, v = split(n1·Wqkvᵀ), q and k rotated
//   attention        o, lse = attention(q, K/V blocks of slices 0..i)
//   post_attention   x2 = x + o·Woᵀ;  n2 = norm(x2);  out = x2 + (silu(gate) ∘ up)·Wdownᵀ
//
// T tokens, H hidden, N heads, K KV heads, D head size, F FFN size; "compute" is the run's compute type.

#include <cstdint>
#include <span>

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/execution_context.h"
#include "slimpipe/model/parallel_context.h"
#include "slimpipe/model/parameters.h"
#include "slimpipe/model/slice.h"

namespace slimpipe::model {

/// What a layer computes again in its backward instead of keeping it. kSelective: the two norms' outputs and
/// the gated product, which are large and cost one pass over memory each. The same operators on the same
/// values, so results are equal to the bit.
enum class Recompute : std::uint8_t { kNone, kSelective };

/// What a layer keeps of a slice from its forward. Freed in parts: `input_part` when the backward for
/// inputs is done, `weight_part` (the inputs of the linears, or what they are computed from) when the weight
/// gradients are; `x_part` with the one or the other. K and V live until the slice's own attention backward,
/// which is their last reader.
struct LayerSaved {
  device::Buffer x_part;
  device::Buffer kv_part;
  device::Buffer input_part;
  device::Buffer weight_part;

  Tensor x;            ///< [T, H] compute, x_part: the layer's input
  device::KvBlock kv;  ///< [T, K, D] twice, kv_part
  Tensor q;            ///< [T, N, D] compute, input_part
  Tensor lse;          ///< [N, T] fp32, input_part
  Tensor o;            ///< [T, N, D] compute, weight_part
  Tensor gate_up;      ///< [T, 2F] compute, weight_part; the backward turns it into its own gradient
  // input_part; with selective recomputation weight_part
  Tensor rstd1;  ///< [T] fp32
  Tensor x2;     ///< [T, H] compute
  Tensor rstd2;  ///< [T] fp32
  // weight_part; with selective recomputation empty
  Tensor n1;   ///< [T, H] compute
  Tensor n2;   ///< [T, H] compute
  Tensor act;  ///< [T, F] compute
};

/// Gradients alive during one layer's backward of a slice, Scope::kWorkspace. Every dY of the linears is
/// kept for their weight gradients; each part is allocated by the step that fills it. delta is freed by
/// attention_backward, d_o and dq by pre_attention_backward_input, their last readers.
struct LayerBackward {
  device::Buffer d_out_part;
  device::Buffer act_part;
  device::Buffer ffn_part;
  device::Buffer d_o_part;
  device::Buffer delta_part;
  device::Buffer dq_part;
  device::Buffer qkv_part;

  LayerTensors gradients;  ///< of the layer's parameters, fp32, the parameter store's; each is added to
  Tensor d_out;            ///< [T, H] compute, d_out_part, gradient of the layer's output; the caller's
  Tensor act;              ///< [T, F] compute: what was saved, or computed again into act_part
  Tensor d_gate_up;        ///< [T, 2F] compute, in the place of the saved gate_up
  Tensor d_x2;             ///< [T, H] compute, ffn_part
  Tensor d_o;              ///< [T, N, D] compute, d_o_part
  Tensor delta;            ///< [N, T] fp32, delta_part: rowsum(dO ∘ O)
  Tensor dq;               ///< [T, N, D] fp32, dq_part
  Tensor d_qkv;            ///< [T, (N + 2K)·D] compute, qkv_part
};

class DecoderLayer {
 public:
  DecoderLayer(const config::ModelConfig& model, DType compute, ParallelContext& parallel,
               LayerTensors weights, Recompute recompute = Recompute::kNone);

  /// Allocates x_part (where `saved.x` is still empty: layer 0 of a stage is given its received input)
  /// and the other parts, in Scope::kSavedActivations.
  void allocate_saved(const device::ExecutionContext& context, const SliceRef& slice,
                      LayerSaved& saved) const;
  /// Frees what pre_attention_backward_input, and what backward_weight, was the last to read.
  void free_after_input_gradients(LayerSaved& saved) const;
  void free_after_weight_gradients(LayerSaved& saved) const;
  /// Between the two backwards, where the one for weights comes later: moves what it will read to
  /// Scope::kDeferred.
  static void defer(LayerSaved& saved, LayerBackward& state);
  /// Allocates dK, dV blocks, zeroed, Scope::kKvGradients; returns the block over `buffer`.
  [[nodiscard]] device::KvGradientBlock allocate_kv_gradient(const device::ExecutionContext& context,
                                                             std::int64_t tokens,
                                                             device::Buffer& buffer) const;

  void pre_attention(const device::ExecutionContext& context, const SliceRef& slice, LayerSaved& saved) const;
  /// `blocks`: slices 0..i of this layer and microbatch, the slice's own last. What is attended to elsewhere
  /// is left out, and merged into saved.o and saved.lse afterwards.
  void attention(const device::ExecutionContext& context, const SliceRef& slice, LayerSaved& saved,
                 std::span<const device::KvBlock> blocks) const;
  /// out = [T, H] compute, the caller's memory (the next layer's x or a send buffer).
  void post_attention(const device::ExecutionContext& context, const SliceRef& slice, LayerSaved& saved,
                      Tensor out) const;

  /// d_gate_up, d_x2, d_o = ... from state.d_out, and the feed-forward norm's gradient += ... state.d_out and
  /// state.gradients are the caller's to set. saved.gate_up is overwritten.
  void post_attention_backward_input(const device::ExecutionContext& context, const SliceRef& slice,
                                     LayerSaved& saved, LayerBackward& state) const;
  /// delta = ..., where it is wanted before attention_backward, which does it otherwise.
  void attention_delta(const device::ExecutionContext& context, const SliceRef& slice,
                       const LayerSaved& saved, LayerBackward& state) const;
  /// dq = ...; dK, dV of `blocks` += ... The blocks are those of `attention`.
  void attention_backward(const device::ExecutionContext& context, const SliceRef& slice,
                          const LayerSaved& saved, LayerBackward& state,
                          std::span<const device::KvBlock> blocks,
                          std::span<const device::KvGradientBlock> kv_gradients) const;
  /// d_qkv and d_x = [T, H] compute (the caller's memory, not state.d_out) from dq and the slice's own
  /// complete dK, dV, and the attention norm's gradient += ...; frees d_o and dq.
  void pre_attention_backward_input(const device::ExecutionContext& context, const SliceRef& slice,
                                    const LayerSaved& saved, LayerBackward& state,
                                    const device::KvGradientBlock& own, Tensor d_x) const;
  /// All weight gradients of the linears += ...; norm gains are done with the inputs.
  void backward_weight(const device::ExecutionContext& context, const SliceRef& slice,
                       const LayerSaved& saved, const LayerBackward& state) const;

 private:
  /// An activation that is kept, or one in workspace for as long as this lives.
  struct Kept {
    device::Buffer temporary;
    Tensor tensor;
  };
  [[nodiscard]] Kept kept_or_temporary(const device::ExecutionContext& context, Tensor kept,
                                       std::initializer_list<std::int64_t> dims) const;
  /// The norm's output: kept, or computed again.
  [[nodiscard]] Kept normed_again(const device::ExecutionContext& context, Tensor kept, Tensor x,
                                  Tensor weight) const;

  config::ModelConfig model_;
  DType compute_;
  ParallelContext& parallel_;
  LayerTensors weights_;
  Recompute recompute_;
};

}  // namespace slimpipe::model
