// Joining attention over parts of the keys, for each instruction set.

// simd_targets.h must come first, and foreach_target.h before what it compiles again.
// clang-format off
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_merge.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "slimpipe/core/dtype.h"

#include "device/attention_checks.h"
#include "device/cpu/attention.h"
#include "device/cpu/attention_rows-inl.h"
#include "device/cpu/parallel.h"

#ifndef SLIMPIPE_DEVICE_CPU_ATTENTION_MERGE_WEIGHTS
#define SLIMPIPE_DEVICE_CPU_ATTENTION_MERGE_WEIGHTS
namespace slimpipe::device::cpu {

/// What a row's two results weigh in the joint one. Differences of lse are taken in double, where they are
/// exact: lse of long rows is large.
struct MergeWeights {
  float part = 0;
  float rest = 1;
  float lse = 0;
};
inline MergeWeights merge_weights(float lse_part, float lse) {
  const float largest = std::max(lse_part, lse);
  if (std::isinf(largest) && largest < 0) return {.part = 0, .rest = 1, .lse = lse};  // no key at all
  const double part = std::exp(static_cast<double>(lse_part) - static_cast<double>(largest));
  const double rest = std::exp(static_cast<double>(lse) - static_cast<double>(largest));
  const double sum = part + rest;
  return {.part = static_cast<float>(part / sum),
          .rest = static_cast<float>(rest / sum),
          .lse = static_cast<float>(static_cast<double>(largest) + std::log(sum))};
}

}  // namespace slimpipe::device::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// Tokens [begin, end).
void merge_rows(const Tensor& o_part, const Tensor& lse_part, const Tensor& o, const Tensor& lse,
                std::int64_t begin, std::int64_t end) {
  dispatch_compute(o.dtype(), [&]<class T>(T) HWY_ATTR {
    for (std::int64_t head = 0; head < o.dim(1); ++head) {
      const HeadRows<const T> from = head_rows<const T>(o_part, head, begin, end);
      const HeadRows<T> to = head_rows<T>(o, head, begin, end);
      const float* lse_from = lse_part.as<float>() + head * lse_part.stride(0) + begin;
      float* lse_to = lse.as<float>() + head * lse.stride(0) + begin;
      for (std::int64_t i = 0; i < to.count; ++i) {
        const MergeWeights weights = merge_weights(lse_from[i], lse_to[i]);
        lse_to[i] = weights.lse;
        const Lanes part = broadcast(weights.part);
        const Lanes rest = broadcast(weights.rest);
        for_each_block(o.dim(2), [&](std::int64_t d, auto extent) HWY_ATTR {
          const Lanes kept = rest * load(to.row(i) + d, extent);
          store(multiply_add(part, load(from.row(i) + d, extent), kept), to.row(i) + d, extent);
        });
      }
    }
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(merge_rows);

void merge_attention(Tensor o_part, Tensor lse_part, Tensor o, Tensor lse, int threads) {
  check_merge_attention(o_part, lse_part, o, lse);
  parallel_ranges(threads, o.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(merge_rows)(o_part, lse_part, o, lse, begin, end);
  });
}

}  // namespace slimpipe::device::cpu
#endif
