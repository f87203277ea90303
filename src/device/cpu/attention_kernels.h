#pragma once
// The work items of attention, by kind of product. An item needs scratch of its own and touches no output
// of another's, so any order and any number of threads give the same bits.

#include <cstddef>
#include <cstdint>

#include "slimpipe/device/operators.h"

namespace slimpipe::device::cpu {

struct AttentionKernels {
  /// Queries [begin, end), at most block_queries(D), of a query head.
  void (*forward)(const AttentionForward& args, std::int64_t head, std::int64_t begin, std::int64_t end,
                  std::byte* scratch);
  /// One KV head with all query heads that share it.
  void (*backward)(const AttentionBackward& args, std::int64_t kv_head, std::int64_t heads_per_kv_head,
                   std::byte* scratch);
  std::int64_t (*forward_scratch_bytes)(std::int64_t head_size);
  std::int64_t (*backward_scratch_bytes)(std::int64_t head_size);
};

/// Products in fp32, for tensors of either type, on any CPU.
AttentionKernels attention_fp32_kernels();

/// Products of bf16 pairs, for bf16 tensors; only where the CPU has them.
AttentionKernels attention_bf16_kernels();
bool attention_bf16_available();

/// delta[n, t] = sum over D of d_o ∘ o.
void attention_delta_rows(const Tensor& o, const Tensor& d_o, const Tensor& delta);

}  // namespace slimpipe::device::cpu
