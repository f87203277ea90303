#include "device/cpu/attention.h"

#include <algorithm>
#include <omp.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/dtype.h"

#include "device/attention_checks.h"
#include "device/cpu/attention_kernels.h"
#include "device/cpu/attention_layout.h"
#include "device/operator_checks.h"

namespace slimpipe::device::cpu {

namespace {

AttentionKernels kernels_for(DType dtype) {
  return dtype == DType::kBF16 && attention_bf16_available() ? attention_bf16_kernels()
                                                             : attention_fp32_kernels();
}

/// Calls body(item, scratch) for every item of [0, items); each thread has a part of the workspace. Items
/// go to whichever thread is free: they are unequal, and independent.
template <class Body>
void for_each_item(std::int64_t items, int threads, Tensor workspace, std::int64_t scratch_bytes,
                   const Body& body) {
  auto* memory = static_cast<std::byte*>(workspace.data());
  if (threads <= 1 || items <= 1) {
    for (std::int64_t item = 0; item < items; ++item) body(item, memory);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::int64_t item = 0; item < items; ++item) body(item, memory + omp_get_thread_num() * scratch_bytes);
}

}  // namespace

std::int64_t attention_forward_workspace_bytes(const AttentionForward& args, int threads) {
  check_attention_forward(args);
  return std::max(threads, 1) * kernels_for(args.q.dtype()).forward_scratch_bytes(args.q.dim(2));
}

void attention_forward(const AttentionForward& args, Tensor workspace, int threads) {
  check_attention_forward(args);
  const AttentionKernels kernels = kernels_for(args.q.dtype());
  const std::int64_t scratch_bytes = kernels.forward_scratch_bytes(args.q.dim(2));
  check_workspace("attention_forward", workspace, std::max(threads, 1) * scratch_bytes);
  const std::int64_t queries = args.q.dim(0);
  const std::int64_t block = block_queries(args.q.dim(2));
  const std::int64_t blocks = (queries + block - 1) / block;
  // Last blocks first: they see the most keys, and what comes last should be short.
  for_each_item(args.q.dim(1) * blocks, threads, workspace, scratch_bytes,
                [&](std::int64_t item, std::byte* scratch) {
                  const std::int64_t begin = (blocks - 1 - item % blocks) * block;
                  kernels.forward(args, item / blocks, begin, std::min(queries, begin + block), scratch);
                });
}

void attention_delta(Tensor o, Tensor d_o, Tensor delta) {
  check_attention_delta(o, d_o, delta);
  attention_delta_rows(o, d_o, delta);
}

std::int64_t attention_backward_workspace_bytes(const AttentionBackward& args, int threads) {
  check_attention_backward(args);
  return std::max(threads, 1) * kernels_for(args.q.dtype()).backward_scratch_bytes(args.q.dim(2));
}

void attention_backward(const AttentionBackward& args, Tensor workspace, int threads) {
  check_attention_backward(args);
  const AttentionKernels kernels = kernels_for(args.q.dtype());
  const std::int64_t scratch_bytes = kernels.backward_scratch_bytes(args.q.dim(2));
  check_workspace("attention_backward", workspace, std::max(threads, 1) * scratch_bytes);
  // Without keys every query head stands alone, and its dq becomes 0.
  const std::int64_t kv_heads = args.blocks.empty() ? args.q.dim(1) : args.blocks[0].k.dim(1);
  if (kv_heads == 0) return;
  for_each_item(kv_heads, threads, workspace, scratch_bytes, [&](std::int64_t item, std::byte* scratch) {
    kernels.backward(args, item, args.q.dim(1) / kv_heads, scratch);
  });
}

}  // namespace slimpipe::device::cpu
