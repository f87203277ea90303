// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <cmath>

#include "slimpipe/core/tensor.h"

#include "device/cpu/parallel.h"
#include "device/cpu/rope.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

enum class Direction { kForward, kBack };

/// Rotates `heads` heads of one token by the angles of cos and sin [D/2], from x to y. kBack is the
/// transpose: the same by the negative angles.
template <Direction kDirection, class From, class To>
void rotate(const From* x, const float* cos, const float* sin, To* y, std::int64_t heads, std::int64_t size) {
  const std::int64_t half = size / 2;
  for (std::int64_t h = 0; h < heads; ++h, x += size, y += size) {
    for_each_block(half, [=](std::int64_t i, auto extent) HWY_ATTR {
      const Lanes c = load(cos + i, extent);
      const Lanes s = load(sin + i, extent);
      const Lanes first = load(x + i, extent);
      const Lanes second = load(x + half + i, extent);
      if constexpr (kDirection == Direction::kForward) {
        store(negative_multiply_add(second, s, first * c), y + i, extent);
        store(multiply_add(first, s, second * c), y + half + i, extent);
      } else {
        store(multiply_add(second, s, first * c), y + i, extent);
        store(negative_multiply_add(first, s, second * c), y + half + i, extent);
      }
    });
  }
}

template <class T>
void forward_rows(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const Tensor& q, const Tensor& k,
                  const Tensor& v, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = q.dim(2);
  const std::int64_t q_width = q.dim(1) * size;
  const std::int64_t k_width = k.dim(1) * size;
  for (std::int64_t t = begin; t < end; ++t) {
    const T* from = qkv.as<T>() + t * qkv.stride(0);
    const float* c = cos.as<float>() + t * (size / 2);
    const float* s = sin.as<float>() + t * (size / 2);
    rotate<Direction::kForward>(from, c, s, q.as<T>() + t * q_width, q.dim(1), size);
    rotate<Direction::kForward>(from + q_width, c, s, k.as<T>() + t * k_width, k.dim(1), size);
    std::memcpy(v.as<T>() + t * k_width, from + q_width + k_width,
                static_cast<std::size_t>(k_width) * sizeof(T));
  }
}

template <class T>
void backward_rows(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cos, const Tensor& sin,
                   const Tensor& d_qkv, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = dq.dim(2);
  const std::int64_t q_width = dq.dim(1) * size;
  const std::int64_t k_width = dk.dim(1) * size;
  for (std::int64_t t = begin; t < end; ++t) {
    T* to = d_qkv.as<T>() + t * d_qkv.stride(0);
    const float* c = cos.as<float>() + t * (size / 2);
    const float* s = sin.as<float>() + t * (size / 2);
    rotate<Direction::kBack>(dq.as<float>() + t * q_width, c, s, to, dq.dim(1), size);
    rotate<Direction::kBack>(dk.as<float>() + t * k_width, c, s, to + q_width, dk.dim(1), size);
    const float* from = dv.as<float>() + t * k_width;
    T* d_v = to + q_width + k_width;
    for_each_block(k_width, [=](std::int64_t i, auto extent)
                                HWY_ATTR { store(load(from + i, extent), d_v + i, extent); });
  }
}

void rope_forward_rows(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const Tensor& q,
                       const Tensor& k, const Tensor& v, std::int64_t begin, std::int64_t end) {
  dispatch_compute(qkv.dtype(),
                   [&](auto type) { forward_rows<decltype(type)>(qkv, cos, sin, q, k, v, begin, end); });
}

void rope_backward_rows(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cos,
                        const Tensor& sin, const Tensor& d_qkv, std::int64_t begin, std::int64_t end) {
  dispatch_compute(d_qkv.dtype(), [&](auto type) {
    backward_rows<decltype(type)>(dq, dk, dv, cos, sin, d_qkv, begin, end);
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(rope_forward_rows);
HWY_EXPORT(rope_backward_rows);

void rope_table(Tensor inverse_frequency, std::int64_t first_position, float magnitude, Tensor cos,
                Tensor sin, int threads) {
  const std::int64_t half = cos.dim(1);
  const double* frequency = inverse_frequency.as<double>();
  parallel_ranges(threads, cos.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(first_position + t) * frequency[i];
        cos.as<float>()[t * half + i] = static_cast<float>(std::cos(angle) * static_cast<double>(magnitude));
        sin.as<float>()[t * half + i] = static_cast<float>(std::sin(angle) * static_cast<double>(magnitude));
      }
    }
  });
}

void rope_forward(Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v, int threads) {
  parallel_ranges(threads, q.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope_forward_rows)(qkv, cos, sin, q, k, v, begin, end);
  });
}

void rope_backward(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, Tensor d_qkv, int threads) {
  parallel_ranges(threads, dq.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope_backward_rows)(dq, dk, dv, cos, sin, d_qkv, begin, end);
  });
}

}  // namespace slimpipe::device::cpu
#endif
