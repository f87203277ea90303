#include <utility>

#include "slimpipe/model/decoder_layer.h"

#include "model/operator_calls.h"
#include "model/tensor_buffer.h"

namespace slimpipe::model {
namespace {

/// dW += dYᵀ·X of y = x·Wᵀ. dy [T, out], x [T, in] compute, d_weight [out, in] fp32.
void accumulate_weight_gradient(const device::ExecutionContext& context, Tensor dy, Tensor x,
                                Tensor d_weight) {
  run_gemm(context, {.a = dy, .b = x, .c = d_weight, .transpose_a = true, .accumulate = true});
}

}  // namespace

using device::Scope;

device::KvGradientBlock DecoderLayer::allocate_kv_gradient(const device::ExecutionContext& context,
                                                           std::int64_t tokens,
                                                           device::Buffer& buffer) const {
  device::KvGradientBlock block;
  const Tensor shape = shape_of(DType::kF32, {tokens, model_.kv_heads, model_.head_size});
  buffer = allocate_tensors(context.arena, Scope::kKvGradients, "dK and dV",
                            {{block.dk, shape}, {block.dv, shape}});
  context.operators.zero(context.stream, block.dk);
  context.operators.zero(context.stream, block.dv);
  return block;
}

void DecoderLayer::defer(LayerSaved& saved, LayerBackward& state) {
  for (device::Buffer* part : {&saved.x_part, &saved.weight_part, &state.d_out_part, &state.act_part,
                               &state.ffn_part, &state.qkv_part}) {
    if (*part) part->rescope(Scope::kDeferred);
  }
}

void DecoderLayer::post_attention_backward_input(const device::ExecutionContext& context,
                                                 const SliceRef& slice, LayerSaved& saved,
                                                 LayerBackward& state) const {
  device::Arena& arena = context.arena;
  device::Stream& stream = context.stream;
  const std::int64_t t = slice.tokens;
  const Tensor hidden = shape_of(compute_, {t, model_.hidden});
  Kept act = kept_or_temporary(context, saved.act, {t, model_.ffn});
  if (act.temporary) context.operators.swiglu_forward(stream, saved.gate_up, act.tensor);
  state.act = act.tensor;
  state.act_part = std::move(act.temporary);
  {
    Tensor d_act;
    const device::Buffer buffer = allocate_tensors(arena, Scope::kWorkspace, "gradient of the gated product",
                                                   {{d_act, shape_of(compute_, {t, model_.ffn})}});
    run_gemm(context, {.a = state.d_out, .b = weights_.down, .c = d_act});
    state.d_gate_up = saved.gate_up;
    context.operators.swiglu_backward(stream, d_act, saved.gate_up, state.d_gate_up);
  }
  state.ffn_part = allocate_tensors(arena, Scope::kWorkspace, "gradient of the feed-forward part's input",
                                    {{state.d_x2, hidden}});
  {
    Tensor d_n2;
    const device::Buffer buffer =
        allocate_tensors(arena, Scope::kWorkspace, "gradient of a norm", {{d_n2, hidden}});
    run_gemm(context, {.a = state.d_gate_up, .b = weights_.gate_up, .c = d_n2});
    parallel_.reduce_tensor_partials(stream, d_n2);
    run_rms_norm_backward(context, d_n2, saved.x2, weights_.ffn_norm, saved.rstd2, state.d_out, state.d_x2,
                          state.gradients.ffn_norm);
  }
  state.d_o_part = allocate_tensors(arena, Scope::kWorkspace, "gradient of attention's output",
                                    {{state.d_o, shape_of(compute_, {t, model_.heads, model_.head_size})}});
  run_gemm(context, {.a = state.d_x2,
                     .b = weights_.attention_output,
                     .c = state.d_o.reshape({t, model_.heads * model_.head_size})});
}

void DecoderLayer::attention_delta(const device::ExecutionContext& context, const SliceRef& slice,
                                   const LayerSaved& saved, LayerBackward& state) const {
  state.delta_part = allocate_tensors(context.arena, Scope::kWorkspace, "delta of attention",
                                      {{state.delta, shape_of(DType::kF32, {model_.heads, slice.tokens})}});
  context.operators.attention_delta(context.stream, saved.o, state.d_o, state.delta);
}

void DecoderLayer::attention_backward(const device::ExecutionContext& context, const SliceRef& slice,
                                      const LayerSaved& saved, LayerBackward& state,
                                      std::span<const device::KvBlock> blocks,
                                      std::span<const device::KvGradientBlock> kv_gradients) const {
  device::Arena& arena = context.arena;
  state.dq_part =
      allocate_tensors(arena, Scope::kWorkspace, "dQ",
                       {{state.dq, shape_of(DType::kF32, {slice.tokens, model_.heads, model_.head_size})}});
  if (!state.delta_part) attention_delta(context, slice, saved, state);
  run_attention_backward(context, {.q = saved.q,
                                   .query_position = slice.first_position,
                                   .blocks = blocks,
                                   .document_starts = slice.sequence.document_starts,
                                   .scale = attention_scale(model_.head_size),
                                   .d_o = state.d_o,
                                   .lse = saved.lse,
                                   .delta = state.delta,
                                   .dq = state.dq,
                                   .kv_gradients = kv_gradients});
  state.delta_part.reset();
  state.delta = {};
}

void DecoderLayer::pre_attention_backward_input(const device::ExecutionContext& context,
                                                const SliceRef& slice, const LayerSaved& saved,
                                                LayerBackward& state, const device::KvGradientBlock& own,
                                                Tensor d_x) const {
  device::Arena& arena = context.arena;
  device::Stream& stream = context.stream;
  state.d_o_part.reset();
  state.d_o = {};
  const std::int64_t features = (model_.heads + 2 * model_.kv_heads) * model_.head_size;
  state.qkv_part = allocate_tensors(arena, Scope::kWorkspace, "gradient of q, k, v before rope",
                                    {{state.d_qkv, shape_of(compute_, {slice.tokens, features})}});
  context.operators.rope_backward(stream, state.dq, own.dk, own.dv, slice.rope_cos, slice.rope_sin,
                                  state.d_qkv);
  state.dq_part.reset();
  state.dq = {};
  Tensor d_n1;
  const device::Buffer buffer = allocate_tensors(arena, Scope::kWorkspace, "gradient of a norm",
                                                 {{d_n1, shape_of(compute_, {slice.tokens, model_.hidden})}});
  run_gemm(context, {.a = state.d_qkv, .b = weights_.qkv, .c = d_n1});
  parallel_.reduce_tensor_partials(stream, d_n1);
  run_rms_norm_backward(context, d_n1, saved.x, weights_.attention_norm, saved.rstd1, state.d_x2, d_x,
                        state.gradients.attention_norm);
}

void DecoderLayer::backward_weight(const device::ExecutionContext& context, const SliceRef& slice,
                                   const LayerSaved& saved, const LayerBackward& state) const {
  const Tensor o = saved.o.reshape({slice.tokens, model_.heads * model_.head_size});
  accumulate_weight_gradient(context, state.d_out, state.act, state.gradients.down);
  accumulate_weight_gradient(context, state.d_gate_up,
                             normed_again(context, saved.n2, saved.x2, weights_.ffn_norm).tensor,
                             state.gradients.gate_up);
  accumulate_weight_gradient(context, state.d_x2, o, state.gradients.attention_output);
  accumulate_weight_gradient(context, state.d_qkv,
                             normed_again(context, saved.n1, saved.x, weights_.attention_norm).tensor,
                             state.gradients.qkv);
}

DecoderLayer::Kept DecoderLayer::normed_again(const device::ExecutionContext& context, Tensor kept, Tensor x,
                                              Tensor weight) const {
  Kept result = kept_or_temporary(context, kept, {x.dim(0), x.dim(1)});
  if (result.temporary) {
    Tensor rstd;
    const device::Buffer buffer = allocate_tensors(context.arena, Scope::kWorkspace, "rstd of a norm",
                                                   {{rstd, shape_of(DType::kF32, {x.dim(0)})}});
    context.operators.rms_norm_forward(context.stream, x, weight, static_cast<float>(model_.norm_epsilon),
                                       result.tensor, rstd);
  }
  return result;
}

}  // namespace slimpipe::model
