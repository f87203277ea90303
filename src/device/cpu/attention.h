#pragma once
// Attention over a list of KV blocks on the CPU; the contracts are those of device/operators.h.
//
// The forward is shared among threads by query head and block of queries, the backward by KV head: more
// threads than KV heads do not make it faster. The workspace grows with head size and threads alone.

#include <cstdint>

#include "slimpipe/device/operators.h"

namespace slimpipe::device::cpu {

void attention_forward(const AttentionForward& args, Tensor workspace, int threads);
[[nodiscard]] std::int64_t attention_forward_workspace_bytes(const AttentionForward& args, int threads);
void merge_attention(Tensor o_part, Tensor lse_part, Tensor o, Tensor lse, int threads);
void attention_delta(Tensor o, Tensor d_o, Tensor delta);
void attention_backward(const AttentionBackward& args, Tensor workspace, int threads);
[[nodiscard]] std::int64_t attention_backward_workspace_bytes(const AttentionBackward& args, int threads);

}  // namespace slimpipe::device::cpu
