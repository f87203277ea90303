#include "slimpipe/model/exchange_messages.h"

#include "model/operator_calls.h"
#include "model/tensor_buffer.h"

namespace slimpipe::model {
namespace {

using device::Scope;

struct Shapes {
  Tensor kv;        ///< of K or V of a range
  Tensor gradient;  ///< of dK or dV of a range
  Tensor queries;   ///< of Q, O, dO
  Tensor dq;
  Tensor statistic;  ///< of lse, delta
};

Shapes shapes_of(const AttentionShape& s, std::int64_t keys = 0) {
  return {.kv = shape_of(s.compute, {keys, s.kv_heads, s.head_size}),
          .gradient = shape_of(DType::kF32, {keys, s.kv_heads, s.head_size}),
          .queries = shape_of(s.compute, {s.tokens, s.heads, s.head_size}),
          .dq = shape_of(DType::kF32, {s.tokens, s.heads, s.head_size}),
          .statistic = shape_of(DType::kF32, {s.heads, s.tokens})};
}

std::vector<Placement> placements_of(KeysMessage& message, const AttentionShape& s, std::int64_t keys) {
  const Shapes shapes = shapes_of(s, keys);
  return {{message.k, shapes.kv}, {message.v, shapes.kv}};
}

std::vector<Placement> placements_of(QueryMessage& message, const AttentionShape& s, bool forward) {
  const Shapes shapes = shapes_of(s);
  if (forward) return {{message.q, shapes.queries}};
  return {{message.q, shapes.queries},
          {message.d_o, shapes.queries},
          {message.lse, shapes.statistic},
          {message.delta, shapes.statistic}};
}

std::vector<Placement> placements_of(ResultMessage& message, const AttentionShape& s, bool forward,
                                     std::int64_t keys) {
  const Shapes shapes = shapes_of(s, keys);
  if (forward) return {{message.o, shapes.queries}, {message.lse, shapes.statistic}};
  return {{message.dq, shapes.dq}, {message.dk, shapes.gradient}, {message.dv, shapes.gradient}};
}

template <class Message, class... Sizes>
Message allocate(device::Arena& arena, const char* name, const AttentionShape& shape, Sizes... sizes) {
  Message message;
  message.part = allocate_tensors(arena, Scope::kExchange, name, placements_of(message, shape, sizes...));
  return message;
}

template <class Message, class... Sizes>
std::int64_t bytes_of(const AttentionShape& shape, Sizes... sizes) {
  Message message;
  return placed_bytes(placements_of(message, shape, sizes...));
}

}  // namespace

KeysMessage allocate_keys(device::Arena& arena, const AttentionShape& shape, std::int64_t keys) {
  return allocate<KeysMessage>(arena, "exchanged K and V", shape, keys);
}

QueryMessage allocate_query(device::Arena& arena, const AttentionShape& shape, bool forward) {
  return allocate<QueryMessage>(arena, "exchanged queries", shape, forward);
}

ResultMessage allocate_result(device::Arena& arena, const AttentionShape& shape, bool forward,
                              std::int64_t keys) {
  return allocate<ResultMessage>(arena, "exchanged partial attention", shape, forward, keys);
}

std::int64_t keys_bytes(const AttentionShape& shape, std::int64_t keys) {
  return bytes_of<KeysMessage>(shape, keys);
}

std::int64_t query_bytes(const AttentionShape& shape, bool forward) {
  return bytes_of<QueryMessage>(shape, forward);
}

std::int64_t result_bytes(const AttentionShape& shape, bool forward, std::int64_t keys) {
  return bytes_of<ResultMessage>(shape, forward, keys);
}

void help_attention(const device::ExecutionContext& context, const HelpPositions& at, const KeysMessage& keys,
                    const QueryMessage& query, const ResultMessage& result) {
  const device::KvBlock block{keys.k, keys.v, at.first_key};
  run_attention_forward(context, {.q = query.q,
                                  .query_position = at.query_position,
                                  .blocks = {&block, 1},
                                  .document_starts = {},
                                  .scale = attention_scale(query.q.dim(2)),
                                  .o = result.o,
                                  .lse = result.lse});
}

void help_attention_backward(const device::ExecutionContext& context, const HelpPositions& at,
                             const KeysMessage& keys, const QueryMessage& query,
                             const ResultMessage& result) {
  const device::KvBlock block{keys.k, keys.v, at.first_key};
  const device::KvGradientBlock gradient{result.dk, result.dv};
  context.operators.zero(context.stream, result.dk);
  context.operators.zero(context.stream, result.dv);
  run_attention_backward(context, {.q = query.q,
                                   .query_position = at.query_position,
                                   .blocks = {&block, 1},
                                   .document_starts = {},
                                   .scale = attention_scale(query.q.dim(2)),
                                   .d_o = query.d_o,
                                   .lse = query.lse,
                                   .delta = query.delta,
                                   .dq = result.dq,
                                   .kv_gradients = {&gradient, 1}});
}

}  // namespace slimpipe::model
