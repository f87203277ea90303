// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include "slimpipe/core/tensor.h"

#include "device/cpu/parallel.h"
#include "device/cpu/swiglu.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// 1 / (1 + e^-x), from e^-|x| so that nothing overflows: for negative x, e^-|x| / (1 + e^-|x|).
HWY_INLINE Lanes sigmoid(const Lanes& x) {
  const FloatTag d;
  const Lanes small = exp_of_nonpositive(map(x, [](auto v) HWY_ATTR { return hn::Neg(hn::Abs(v)); }));
  const Lanes one = broadcast(1.0F);
  Lanes numerator;
  for (int i = 0; i < kParts; ++i)
    numerator.part[i] = hn::IfThenElse(hn::Lt(x.part[i], hn::Zero(d)), small.part[i], one.part[i]);
  return numerator / (one + small);
}

template <class T>
void forward_rows(const Tensor& gate_up, const Tensor& y, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = y.dim(1);
  for (std::int64_t t = begin; t < end; ++t) {
    const T* gate = gate_up.as<T>() + t * gate_up.stride(0);
    const T* up = gate + size;
    T* to = y.as<T>() + t * y.stride(0);
    for_each_block(size, [=](std::int64_t i, auto extent) HWY_ATTR {
      const Lanes g = load(gate + i, extent);
      store(g * sigmoid(g) * load(up + i, extent), to + i, extent);
    });
  }
}

/// With s = sigmoid(g): silu'(g) = s + g · s · (1 - s).
template <class T>
void backward_rows(const Tensor& dy, const Tensor& gate_up, const Tensor& d_gate_up, std::int64_t begin,
                   std::int64_t end) {
  const std::int64_t size = dy.dim(1);
  for (std::int64_t t = begin; t < end; ++t) {
    const T* from = dy.as<T>() + t * dy.stride(0);
    const T* gate = gate_up.as<T>() + t * gate_up.stride(0);
    const T* up = gate + size;
    T* d_gate = d_gate_up.as<T>() + t * d_gate_up.stride(0);
    T* d_up = d_gate + size;
    for_each_block(size, [=](std::int64_t i, auto extent) HWY_ATTR {
      const Lanes gradient = load(from + i, extent);
      const Lanes g = load(gate + i, extent);
      const Lanes u = load(up + i, extent);
      const Lanes s = sigmoid(g);
      const Lanes silu = g * s;
      const Lanes slope = multiply_add(silu, broadcast(1.0F) - s, s);
      store(gradient * u * slope, d_gate + i, extent);
      store(gradient * silu, d_up + i, extent);
    });
  }
}

void swiglu_forward_rows(const Tensor& gate_up, const Tensor& y, std::int64_t begin, std::int64_t end) {
  dispatch_compute(y.dtype(), [&](auto type) { forward_rows<decltype(type)>(gate_up, y, begin, end); });
}

void swiglu_backward_rows(const Tensor& dy, const Tensor& gate_up, const Tensor& d_gate_up,
                          std::int64_t begin, std::int64_t end) {
  dispatch_compute(dy.dtype(),
                   [&](auto type) { backward_rows<decltype(type)>(dy, gate_up, d_gate_up, begin, end); });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(swiglu_forward_rows);
HWY_EXPORT(swiglu_backward_rows);

void swiglu_forward(Tensor gate_up, Tensor y, int threads) {
  parallel_ranges(threads, y.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_forward_rows)(gate_up, y, begin, end);
  });
}

void swiglu_backward(Tensor dy, Tensor gate_up, Tensor d_gate_up, int threads) {
  parallel_ranges(threads, dy.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_backward_rows)(dy, gate_up, d_gate_up, begin, end);
  });
}

}  // namespace slimpipe::device::cpu
#endif
