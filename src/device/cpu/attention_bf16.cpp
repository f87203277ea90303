// Attention with the bf16 products of AVX-512 BF16. The instruction set stands between those that Highway
// tells apart, so the code is that of its AVX-512 with one feature more, chosen here at run time.

// Everything outside the vectorised namespaces first: it must not be compiled for a special CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>

#include "slimpipe/core/check.h"
#include "slimpipe/core/dtype.h"
#include "slimpipe/core/tensor.h"
#include "slimpipe/device/operators.h"

#include "device/cpu/attention_kernels.h"
#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_visibility.h"

// simd_targets.h must come first, and foreach_target.h before what it compiles again.
// clang-format off
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_bf16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
// What HWY_BEFORE_NAMESPACE compiles for; Highway defines it anew for its next target.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#endif
// In every pass, because their guards count the passes; used in one.
#include "device/cpu/attention_backward-inl.h"
#include "device/cpu/attention_forward-inl.h"

#if HWY_TARGET == HWY_AVX3
#include "device/cpu/attention_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

void forward_bf16(const AttentionForward& args, std::int64_t head, std::int64_t begin, std::int64_t end,
                  std::byte* scratch) {
  ForwardBlock<BFloat16, Bf16Operands>(args, head, begin, end, scratch).run();
}

void backward_bf16(const AttentionBackward& args, std::int64_t kv_head, std::int64_t heads_per_kv_head,
                   std::byte* scratch) {
  BackwardHead<BFloat16, Bf16Operands>(args, kv_head, heads_per_kv_head, scratch).run();
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace slimpipe::device::cpu {

#if HWY_TARGETS & HWY_AVX3

bool attention_bf16_available() {
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16");
}

AttentionKernels attention_bf16_kernels() {
  return {.forward = N_AVX3::forward_bf16,
          .backward = N_AVX3::backward_bf16,
          .forward_scratch_bytes =
              [](std::int64_t d) { return ForwardScratch<std::uint32_t, 2>(nullptr, d).bytes; },
          .backward_scratch_bytes =
              [](std::int64_t d) { return BackwardScratch<std::uint32_t, 2>(nullptr, d).bytes; }};
}

#else

bool attention_bf16_available() {
  return false;
}

AttentionKernels attention_bf16_kernels() {
  throw_error("this CPU has no bf16 product: ask attention_bf16_available() first");
}

#endif

}  // namespace slimpipe::device::cpu
#endif
