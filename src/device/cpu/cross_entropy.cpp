// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "slimpipe/core/tensor.h"

#include "device/cpu/cross_entropy.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

float largest(const float* x, std::int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Lanes result = broadcast(kLowest);
  for_each_block(n, [&](std::int64_t i, auto extent)
                        HWY_ATTR { result = larger(result, load(x + i, extent, kLowest)); });
  return largest_lane(result);
}

/// Loss of one row: ln(sum of e^(x - max)) + max - x[target]. A NaN logit makes it NaN by way of the sum.
/// Where d_logits is given it becomes (softmax - onehot) · scale; it may be the row itself.
template <class T>
double row_loss(const float* logits, std::int64_t target, float scale, T* d_logits, std::int64_t vocabulary) {
  const float top = largest(logits, vocabulary);
  const Lanes shift = broadcast(top);
  const double sum = long_sum(vocabulary, [=](std::int64_t i, auto extent, const Lanes& partial) HWY_ATTR {
    // Padding of a last block reads as -infinity, which adds nothing.
    const Lanes x = load(logits + i, extent, -std::numeric_limits<float>::infinity());
    return partial + exp_of_nonpositive(x - shift);
  });
  const double at_target = static_cast<double>(logits[target]);
  if (d_logits != nullptr) {
    const float target_probability = static_cast<float>(std::exp(at_target - static_cast<double>(top)) / sum);
    const Lanes factor = broadcast(static_cast<float>(static_cast<double>(scale) / sum));
    for_each_block(vocabulary, [=](std::int64_t i, auto extent) HWY_ATTR {
      store(exp_of_nonpositive(load(logits + i, extent) - shift) * factor, d_logits + i, extent);
    });
    d_logits[target] = T((target_probability - 1.0F) * scale);
  }
  return std::log(sum) + static_cast<double>(top) - at_target;
}

template <class T>
double rows_loss(const Tensor& logits, const Tensor& targets, float scale, const Tensor& d_logits,
                 std::int64_t begin, std::int64_t end) {
  const std::int64_t vocabulary = logits.dim(1);
  double loss = 0;
  for (std::int64_t t = begin; t < end; ++t) {
    T* gradient = d_logits.empty() ? nullptr : d_logits.as<T>() + t * d_logits.stride(0);
    const std::int32_t target = targets.as<std::int32_t>()[t];
    if (target >= 0) {
      loss += row_loss(logits.as<float>() + t * logits.stride(0), target, scale, gradient, vocabulary);
    } else if (gradient != nullptr) {
      std::fill_n(gradient, vocabulary, T{});
    }
  }
  return loss;
}

double cross_entropy_rows(const Tensor& logits, const Tensor& targets, float scale, const Tensor& d_logits,
                          std::int64_t begin, std::int64_t end) {
  return dispatch_compute(d_logits.dtype(), [&](auto type) {
    return rows_loss<decltype(type)>(logits, targets, scale, d_logits, begin, end);
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(cross_entropy_rows);

void cross_entropy(Tensor logits, Tensor targets, float gradient_scale, Tensor loss_sum, Tensor d_logits,
                   int threads) {
  const std::int64_t tokens = logits.dim(0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t target = targets.as<std::int32_t>()[t];
    SLIMPIPE_CHECK(target < logits.dim(1),
                   "cross_entropy: target {} at row {} is outside the vocabulary of {}", target, t,
                   logits.dim(1));
  }
  // Fixed groups of rows, added in ascending order, whatever the number of threads.
  constexpr std::int64_t kGroupRows = 64;
  constexpr std::int64_t kGroups = 64;
  for (std::int64_t base = 0; base < tokens; base += kGroupRows * kGroups) {
    double partial[kGroups] = {};
    const std::int64_t groups = std::min(kGroups, (tokens - base + kGroupRows - 1) / kGroupRows);
    parallel_ranges(threads, groups, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t group = first; group < last; ++group) {
        const std::int64_t begin = base + group * kGroupRows;
        partial[group] = HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(
            logits, targets, gradient_scale, d_logits, begin, std::min(begin + kGroupRows, tokens));
      }
    });
    for (std::int64_t group = 0; group < groups; ++group) *loss_sum.as<double>() += partial[group];
  }
}

}  // namespace slimpipe::device::cpu
#endif
