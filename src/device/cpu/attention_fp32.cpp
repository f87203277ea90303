// Attention with fp32 products, for each instruction set.

// simd_targets.h must come first, and foreach_target.h before what it compiles again.
// clang-format off
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/attention_fp32.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include "slimpipe/core/dtype.h"
#include "slimpipe/device/operators.h"

#include "device/cpu/attention_backward-inl.h"
#include "device/cpu/attention_forward-inl.h"
#include "device/cpu/attention_fp32-inl.h"
#include "device/cpu/attention_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

void forward_fp32(const AttentionForward& args, std::int64_t head, std::int64_t begin, std::int64_t end,
                  std::byte* scratch) {
  dispatch_compute(args.q.dtype(), [&]<class T>(T) HWY_ATTR {
    ForwardBlock<T, Fp32Operands>(args, head, begin, end, scratch).run();
  });
}

void backward_fp32(const AttentionBackward& args, std::int64_t kv_head, std::int64_t heads_per_kv_head,
                   std::byte* scratch) {
  dispatch_compute(args.q.dtype(), [&]<class T>(T) HWY_ATTR {
    BackwardHead<T, Fp32Operands>(args, kv_head, heads_per_kv_head, scratch).run();
  });
}

void delta_rows(const Tensor& o, const Tensor& d_o, const Tensor& delta) {
  dispatch_compute(o.dtype(), [&]<class T>(T) HWY_ATTR {
    for (std::int64_t head = 0; head < o.dim(1); ++head) {
      const HeadRows<const T> output = head_rows<const T>(o, head, 0, o.dim(0));
      const HeadRows<const T> d_output = head_rows<const T>(d_o, head, 0, o.dim(0));
      float* to = delta.as<float>() + head * delta.stride(0);
      for (std::int64_t i = 0; i < output.count; ++i) {
        Lanes sum = broadcast(0.0F);
        for_each_block(o.dim(2), [&](std::int64_t d, auto extent) HWY_ATTR {
          sum = multiply_add(load(output.row(i) + d, extent), load(d_output.row(i) + d, extent), sum);
        });
        to[i] = sum_of_lanes(sum);
      }
    }
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(forward_fp32);
HWY_EXPORT(backward_fp32);
HWY_EXPORT(delta_rows);

AttentionKernels attention_fp32_kernels() {
  return {
      .forward =
          [](const AttentionForward& args, std::int64_t head, std::int64_t begin, std::int64_t end,
             std::byte* scratch) {
            HWY_DYNAMIC_DISPATCH(forward_fp32)
            (args, head, begin, end, scratch);
          },
      .backward =
          [](const AttentionBackward& args, std::int64_t kv_head, std::int64_t heads_per_kv_head,
             std::byte* scratch) {
            HWY_DYNAMIC_DISPATCH(backward_fp32)(args, kv_head, heads_per_kv_head, scratch);
          },
      .forward_scratch_bytes = [](std::int64_t d) { return ForwardScratch<float, 1>(nullptr, d).bytes; },
      .backward_scratch_bytes = [](std::int64_t d) { return BackwardScratch<float, 1>(nullptr, d).bytes; }};
}

void attention_delta_rows(const Tensor& o, const Tensor& d_o, const Tensor& delta) {
  HWY_DYNAMIC_DISPATCH(delta_rows)(o, d_o, delta);
}

}  // namespace slimpipe::device::cpu
#endif
