#pragma once
// What the exchange of attention context moves between an owner and a helper, for one layer. Every message
// is one buffer of Scope::kExchange with its tensors in the order given here, each at a multiple of
// Arena::kAlignment; both ends derive the layout from the shape below.

#include <cstdint>

#include "slimpipe/core/tensor.h"
#include "slimpipe/device/arena.h"
#include "slimpipe/device/execution_context.h"

namespace slimpipe::model {

/// Of the attention of one slice in one layer.
struct AttentionShape {
  std::int64_t tokens = 0;     ///< T
  std::int64_t heads = 0;      ///< N
  std::int64_t kv_heads = 0;   ///< K
  std::int64_t head_size = 0;  ///< D
  DType compute = DType::kF32;
};

/// K and V of a range of `keys` tokens.
struct KeysMessage {
  device::Buffer part;
  Tensor k;  ///< [keys, K, D] compute
  Tensor v;  ///< [keys, K, D] compute
};

/// What a helper attends with. In a forward Q alone.
struct QueryMessage {
  device::Buffer part;
  Tensor q;      ///< [T, N, D] compute
  Tensor d_o;    ///< [T, N, D] compute, backward
  Tensor lse;    ///< [N, T] fp32, backward: of all keys
  Tensor delta;  ///< [N, T] fp32, backward
};

/// What a helper returns: of a forward o and lse over the range, of a backward the range's share of dQ, and
/// its dK and dV.
struct ResultMessage {
  device::Buffer part;
  Tensor o;    ///< [T, N, D] compute, forward
  Tensor lse;  ///< [N, T] fp32, forward
  Tensor dq;   ///< [T, N, D] fp32, backward
  Tensor dk;   ///< [keys, K, D] fp32, backward
  Tensor dv;   ///< [keys, K, D] fp32, backward
};

[[nodiscard]] KeysMessage allocate_keys(device::Arena& arena, const AttentionShape& shape, std::int64_t keys);
[[nodiscard]] QueryMessage allocate_query(device::Arena& arena, const AttentionShape& shape, bool forward);
[[nodiscard]] ResultMessage allocate_result(device::Arena& arena, const AttentionShape& shape, bool forward,
                                            std::int64_t keys);
/// Bytes of those buffers.
[[nodiscard]] std::int64_t keys_bytes(const AttentionShape& shape, std::int64_t keys);
[[nodiscard]] std::int64_t query_bytes(const AttentionShape& shape, bool forward);
[[nodiscard]] std::int64_t result_bytes(const AttentionShape& shape, bool forward, std::int64_t keys);

/// Attention of a slice that begins at `query_position` to the keys from `first_key`, and its backward.
struct HelpPositions {
  std::int64_t query_position = 0;
  std::int64_t first_key = 0;
};
/// result.o, result.lse = ...
void help_attention(const device::ExecutionContext& context, const HelpPositions& at, const KeysMessage& keys,
                    const QueryMessage& query, const ResultMessage& result);
/// result.dq, result.dk, result.dv = ...
void help_attention_backward(const device::ExecutionContext& context, const HelpPositions& at,
                             const KeysMessage& keys, const QueryMessage& query, const ResultMessage& result);

}  // namespace slimpipe::model
