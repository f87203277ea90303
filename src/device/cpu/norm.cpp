// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/norm.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <cmath>

#include "slimpipe/core/tensor.h"

#include "device/cpu/norm.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// y = x · rstd · weight of one row; gives rstd.
template <class T>
float normalize_row(const T* x, const T* weight, float epsilon, T* y, std::int64_t hidden) {
  const double squares = long_sum(hidden, [=](std::int64_t i, auto extent, const Lanes& sum) HWY_ATTR {
    const Lanes value = load(x + i, extent);
    return multiply_add(value, value, sum);
  });
  const auto rstd = static_cast<float>(
      1.0 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(epsilon)));
  const Lanes scale = broadcast(rstd);
  for_each_block(hidden, [=](std::int64_t i, auto extent) HWY_ATTR {
    store(load(x + i, extent) * scale * load(weight + i, extent), y + i, extent);
  });
  return rstd;
}

template <class T>
void forward_rows(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y, const Tensor& rstd,
                  std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t)
    rstd.as<float>()[t] = normalize_row(x.as<T>() + t * x.stride(0), weight.as<T>(), epsilon,
                                        y.as<T>() + t * y.stride(0), x.dim(1));
}

/// Row by row, so that the sum is still in the cache when it is normalised. The norm is taken of the sum
/// as stored, which is what the backward will read.
template <class T>
void add_forward_rows(const Tensor& x, const Tensor& residual, const Tensor& weight, float epsilon,
                      const Tensor& sum, const Tensor& y, const Tensor& rstd, std::int64_t begin,
                      std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const T* from_x = x.as<T>() + t * x.stride(0);
    const T* from_residual = residual.as<T>() + t * residual.stride(0);
    T* to = sum.as<T>() + t * sum.stride(0);
    for_each_block(x.dim(1), [=](std::int64_t i, auto extent) HWY_ATTR {
      store(load(from_x + i, extent) + load(from_residual + i, extent), to + i, extent);
    });
    rstd.as<float>()[t] = normalize_row(to, weight.as<T>(), epsilon, y.as<T>() + t * y.stride(0), x.dim(1));
  }
}

/// One row of the backward. With x̂ = x · rstd and g = dy · weight:
/// dx = rstd · (g - x̂ · mean(g · x̂)) + residual gradient, and d_weight += dy · x̂.
template <class T>
void backward_row(const T* dy, const T* x, const T* weight, float rstd, const T* residual_gradient, T* dx,
                  float* d_weight, std::int64_t hidden) {
  const double products = long_sum(hidden, [=](std::int64_t i, auto extent, const Lanes& sum) HWY_ATTR {
    return multiply_add(load(dy + i, extent) * load(weight + i, extent), load(x + i, extent), sum);
  });
  const Lanes scale = broadcast(rstd);
  const Lanes mean =
      broadcast(static_cast<float>(products * static_cast<double>(rstd) / static_cast<double>(hidden)));
  for_each_block(hidden, [=](std::int64_t i, auto extent) HWY_ATTR {
    const Lanes gradient = load(dy + i, extent);
    const Lanes normalized = load(x + i, extent) * scale;
    store(multiply_add(gradient, normalized, load(d_weight + i, extent)), d_weight + i, extent);
    const Lanes weighted = gradient * load(weight + i, extent);
    Lanes result = negative_multiply_add(normalized, mean, weighted) * scale;
    if (residual_gradient != nullptr) result = result + load(residual_gradient + i, extent);
    store(result, dx + i, extent);
  });
}

/// Rows [begin, end), whose part of d_weight becomes `partial` [H].
template <class T>
void backward_rows(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                   const Tensor& residual_gradient, const Tensor& dx, float* partial, std::int64_t begin,
                   std::int64_t end) {
  const std::int64_t hidden = x.dim(1);
  std::memset(partial, 0, static_cast<std::size_t>(hidden) * sizeof(float));
  for (std::int64_t t = begin; t < end; ++t) {
    const T* residual =
        residual_gradient.empty() ? nullptr : residual_gradient.as<T>() + t * residual_gradient.stride(0);
    backward_row(dy.as<T>() + t * dy.stride(0), x.as<T>() + t * x.stride(0), weight.as<T>(),
                 rstd.as<float>()[t], residual, dx.as<T>() + t * dx.stride(0), partial, hidden);
  }
}

void accumulate(const float* partial, float* total, std::int64_t n) {
  for_each_block(n, [=](std::int64_t i, auto extent) HWY_ATTR {
    store(load(total + i, extent) + load(partial + i, extent), total + i, extent);
  });
}

void rms_norm_forward_rows(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                           const Tensor& rstd, std::int64_t begin, std::int64_t end) {
  dispatch_compute(x.dtype(),
                   [&](auto type) { forward_rows<decltype(type)>(x, weight, epsilon, y, rstd, begin, end); });
}

void add_rms_norm_forward_rows(const Tensor& x, const Tensor& residual, const Tensor& weight, float epsilon,
                               const Tensor& sum, const Tensor& y, const Tensor& rstd, std::int64_t begin,
                               std::int64_t end) {
  dispatch_compute(x.dtype(), [&](auto type) {
    add_forward_rows<decltype(type)>(x, residual, weight, epsilon, sum, y, rstd, begin, end);
  });
}

void rms_norm_backward_rows(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                            const Tensor& residual_gradient, const Tensor& dx, float* partial,
                            std::int64_t begin, std::int64_t end) {
  dispatch_compute(x.dtype(), [&](auto type) {
    backward_rows<decltype(type)>(dy, x, weight, rstd, residual_gradient, dx, partial, begin, end);
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(rms_norm_forward_rows);
HWY_EXPORT(add_rms_norm_forward_rows);
HWY_EXPORT(rms_norm_backward_rows);
HWY_EXPORT(accumulate);

namespace {

/// Rows that share one partial sum of the weight gradient: fixed, so the sum does not depend on threads.
constexpr std::int64_t kGroupRows = 64;

constexpr std::int64_t groups_of(std::int64_t tokens) {
  return (tokens + kGroupRows - 1) / kGroupRows;
}

}  // namespace

void rms_norm_forward(Tensor x, Tensor weight, float epsilon, Tensor y, Tensor rstd, int threads) {
  parallel_ranges(threads, x.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm_forward_rows)(x, weight, epsilon, y, rstd, begin, end);
  });
}

void add_rms_norm_forward(Tensor x, Tensor residual, Tensor weight, float epsilon, Tensor sum, Tensor y,
                          Tensor rstd, int threads) {
  parallel_ranges(threads, x.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_rms_norm_forward_rows)(x, residual, weight, epsilon, sum, y, rstd, begin, end);
  });
}

std::int64_t rms_norm_backward_workspace_bytes(std::int64_t tokens, std::int64_t hidden) {
  return groups_of(tokens) * hidden * size_of(DType::kF32);
}

void rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor rstd, Tensor residual_gradient, Tensor dx,
                       Tensor d_weight, Tensor workspace, int threads) {
  const std::int64_t tokens = x.dim(0);
  const std::int64_t hidden = x.dim(1);
  auto* partials = static_cast<float*>(workspace.data());
  parallel_ranges(threads, groups_of(tokens), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t group = first; group < last; ++group) HWY_DYNAMIC_DISPATCH(rms_norm_backward_rows)
    (dy, x, weight, rstd, residual_gradient, dx, partials + group * hidden, group * kGroupRows,
     std::min(tokens, (group + 1) * kGroupRows));
  });
  for (std::int64_t group = 0; group < groups_of(tokens); ++group)
    HWY_DYNAMIC_DISPATCH(accumulate)(partials + group * hidden, d_weight.as<float>(), hidden);
}

}  // namespace slimpipe::device::cpu
#endif
