#include "slimpipe/model/decoder_layer.h"

#include "model/operator_calls.h"
#include "model/tensor_buffer.h"

namespace slimpipe::model {

using device::Scope;

DecoderLayer::DecoderLayer(const config::ModelConfig& model, DType compute, ParallelContext& parallel,
                           LayerTensors weights, Recompute recompute)
    : model_(model), compute_(compute), parallel_(parallel), weights_(weights), recompute_(recompute) {}

void DecoderLayer::allocate_saved(const device::ExecutionContext& context, const SliceRef& slice,
                                  LayerSaved& saved) const {
  device::Arena& arena = context.arena;
  const config::ModelConfig& m = model_;
  const std::int64_t t = slice.tokens;
  const Tensor hidden = shape_of(compute_, {t, m.hidden});
  const Tensor heads = shape_of(compute_, {t, m.heads, m.head_size});
  const Tensor kv_heads = shape_of(compute_, {t, m.kv_heads, m.head_size});
  const Tensor row_statistic = shape_of(DType::kF32, {t});
  if (saved.x.data() == nullptr) {
    saved.x_part = allocate_tensors(arena, Scope::kSavedActivations, "layer input", {{saved.x, hidden}});
  }
  saved.kv_part = allocate_tensors(arena, Scope::kSavedActivations, "K and V",
                                   {{saved.kv.k, kv_heads}, {saved.kv.v, kv_heads}});
  saved.kv.first_position = slice.first_position;
  const Tensor lse = shape_of(DType::kF32, {m.heads, t});
  const Tensor gate_up = shape_of(compute_, {t, 2 * m.ffn});
  constexpr const char* kForInputs = "saved for input gradients";
  constexpr const char* kForWeights = "saved for weight gradients";
  const Scope scope = Scope::kSavedActivations;
  if (recompute_ == Recompute::kSelective) {
    saved.input_part = allocate_tensors(arena, scope, kForInputs, {{saved.q, heads}, {saved.lse, lse}});
    saved.weight_part = allocate_tensors(arena, scope, kForWeights,
                                         {{saved.rstd1, row_statistic},
                                          {saved.x2, hidden},
                                          {saved.rstd2, row_statistic},
                                          {saved.o, heads},
                                          {saved.gate_up, gate_up}});
    return;
  }
  saved.input_part = allocate_tensors(arena, scope, kForInputs,
                                      {{saved.rstd1, row_statistic},
                                       {saved.q, heads},
                                       {saved.lse, lse},
                                       {saved.x2, hidden},
                                       {saved.rstd2, row_statistic}});
  saved.weight_part = allocate_tensors(arena, scope, kForWeights,
                                       {{saved.n1, hidden},
                                        {saved.o, heads},
                                        {saved.gate_up, gate_up},
                                        {saved.n2, hidden},
                                        {saved.act, shape_of(compute_, {t, m.ffn})}});
}

void DecoderLayer::free_after_input_gradients(LayerSaved& saved) const {
  saved.input_part.reset();
  if (recompute_ == Recompute::kNone) saved.x_part.reset();
}

void DecoderLayer::free_after_weight_gradients(LayerSaved& saved) const {
  saved.weight_part.reset();
  saved.x_part.reset();
}

void DecoderLayer::pre_attention(const device::ExecutionContext& context, const SliceRef& slice,
                                 LayerSaved& saved) const {
  device::Operators& operators = context.operators;
  device::Stream& stream = context.stream;
  const Kept n1 = kept_or_temporary(context, saved.n1, {slice.tokens, model_.hidden});
  operators.rms_norm_forward(stream, saved.x, weights_.attention_norm,
                             static_cast<float>(model_.norm_epsilon), n1.tensor, saved.rstd1);
  const std::int64_t features = (model_.heads + 2 * model_.kv_heads) * model_.head_size;
  Tensor qkv;
  const device::Buffer buffer = allocate_tensors(context.arena, Scope::kWorkspace, "q, k, v before rope",
                                                 {{qkv, shape_of(compute_, {slice.tokens, features})}});
  run_gemm(context, {.a = n1.tensor, .b = weights_.qkv, .c = qkv, .transpose_b = true});
  operators.rope_forward(stream, qkv, slice.rope_cos, slice.rope_sin, saved.q, saved.kv.k, saved.kv.v);
}

void DecoderLayer::attention(const device::ExecutionContext& context, const SliceRef& slice,
                             LayerSaved& saved, std::span<const device::KvBlock> blocks) const {
  run_attention_forward(context, {.q = saved.q,
                                  .query_position = slice.first_position,
                                  .blocks = blocks,
                                  .document_starts = slice.sequence.document_starts,
                                  .scale = attention_scale(model_.head_size),
                                  .o = saved.o,
                                  .lse = saved.lse});
}

void DecoderLayer::post_attention(const device::ExecutionContext& context, const SliceRef& slice,
                                  LayerSaved& saved, Tensor out) const {
  device::Operators& operators = context.operators;
  device::Stream& stream = context.stream;
  const Tensor o = saved.o.reshape({slice.tokens, model_.heads * model_.head_size});
  // x2 first holds o·Woᵀ, then the sum: no temporary.
  run_gemm(context, {.a = o, .b = weights_.attention_output, .c = saved.x2, .transpose_b = true});
  parallel_.reduce_tensor_partials(stream, saved.x2);
  {
    const Kept n2 = kept_or_temporary(context, saved.n2, {slice.tokens, model_.hidden});
    operators.add_rms_norm_forward(stream, saved.x, saved.x2, weights_.ffn_norm,
                                   static_cast<float>(model_.norm_epsilon), saved.x2, n2.tensor, saved.rstd2);
    run_gemm(context, {.a = n2.tensor, .b = weights_.gate_up, .c = saved.gate_up, .transpose_b = true});
  }
  {
    const Kept act = kept_or_temporary(context, saved.act, {slice.tokens, model_.ffn});
    operators.swiglu_forward(stream, saved.gate_up, act.tensor);
    run_gemm(context, {.a = act.tensor, .b = weights_.down, .c = out, .transpose_b = true});
  }
  parallel_.reduce_tensor_partials(stream, out);
  operators.add(stream, saved.x2, out, out);
}

DecoderLayer::Kept DecoderLayer::kept_or_temporary(const device::ExecutionContext& context, Tensor kept,
                                                   std::initializer_list<std::int64_t> dims) const {
  Kept result{.temporary = {}, .tensor = kept};
  if (kept.data() == nullptr) {
    result.temporary = allocate_tensors(context.arena, Scope::kWorkspace, "activation that is not kept",
                                        {{result.tensor, shape_of(compute_, dims)}});
  }
  return result;
}

}  // namespace slimpipe::model
