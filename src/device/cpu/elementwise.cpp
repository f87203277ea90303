// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <cstring>

#include "device/cpu/elementwise.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

template <class From, class To>
void convert(const From* x, To* y, std::int64_t n) {
  for_each_block(n, [=](std::int64_t i, auto extent) HWY_ATTR { store(load(x + i, extent), y + i, extent); });
}

void widen(const BFloat16* x, float* y, std::int64_t n) {
  convert(x, y, n);
}
void narrow(const float* x, BFloat16* y, std::int64_t n) {
  convert(x, y, n);
}

template <class T>
void add_values(const T* a, const T* b, T* y, std::int64_t n) {
  for_each_block(n, [=](std::int64_t i, auto extent)
                        HWY_ATTR { store(load(a + i, extent) + load(b + i, extent), y + i, extent); });
}

void add_f32(const float* a, const float* b, float* y, std::int64_t n) {
  add_values(a, b, y, n);
}
void add_bf16(const BFloat16* a, const BFloat16* b, BFloat16* y, std::int64_t n) {
  add_values(a, b, y, n);
}

/// In double from the square on: gradients' squares may overflow fp32 where their norm does not.
double square_sum(const float* x, std::int64_t n) {
  const hn::CappedTag<double, kLanes> d;
  const hn::Rebind<float, decltype(d)> narrow_tag;
  constexpr std::int64_t kWidth = hn::MaxLanes(d);
  hn::Vec<decltype(d)> sums[kLanes / kWidth];
  for (auto& sum : sums) sum = hn::Zero(d);
  for_each_block(n, [&](std::int64_t i, auto extent) HWY_ATTR {
    alignas(64) float block[kLanes];
    store(load(x + i, extent), block, Whole{});
    for (std::int64_t j = 0; j < kLanes / kWidth; ++j) {
      const auto value = hn::PromoteTo(d, hn::Load(narrow_tag, block + j * kWidth));
      sums[j] = hn::MulAdd(value, value, sums[j]);
    }
  });
  alignas(64) double lane[kLanes];
  for (std::int64_t j = 0; j < kLanes / kWidth; ++j) hn::Store(sums[j], d, lane + j * kWidth);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_bf16);
HWY_EXPORT(square_sum);

namespace {

/// Elements a thread is worth waking for.
constexpr std::int64_t kGrain = 16384;

/// Calls body(row, begin, end) over the elements of `x`: row by row where rows are strided, else over
/// all of it as one row, in ranges.
template <class Body>
void for_each_stretch(int threads, const Tensor& x, bool contiguous, const Body& body) {
  if (x.size() == 0) return;
  if (contiguous) {
    parallel_ranges(threads, x.size(), kGrain,
                    [&](std::int64_t begin, std::int64_t end) { body(std::int64_t{0}, begin, end); });
    return;
  }
  const std::int64_t columns = x.dim(1);
  parallel_ranges(threads, x.dim(0), kGrain / columns + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row, std::int64_t{0}, columns);
  });
}

std::byte* element(const Tensor& x, std::int64_t row, std::int64_t column) {
  return static_cast<std::byte*>(x.data()) + (row * x.stride(0) + column) * size_of(x.dtype());
}

}  // namespace

void sum_of_squares(Tensor x, Tensor result) {
  *result.as<double>() = x.size() == 0 ? 0.0 : HWY_DYNAMIC_DISPATCH(square_sum)(x.as<float>(), x.size());
}

void add(Tensor a, Tensor b, Tensor y, int threads) {
  const bool contiguous = a.contiguous() && b.contiguous() && y.contiguous();
  for_each_stretch(threads, a, contiguous, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    const void* from_a = element(a, row, begin);
    const void* from_b = element(b, row, begin);
    void* to = element(y, row, begin);
    if (a.dtype() == DType::kF32) {
      HWY_DYNAMIC_DISPATCH(add_f32)
      (static_cast<const float*>(from_a), static_cast<const float*>(from_b), static_cast<float*>(to),
       end - begin);
    } else {
      HWY_DYNAMIC_DISPATCH(add_bf16)
      (static_cast<const BFloat16*>(from_a), static_cast<const BFloat16*>(from_b), static_cast<BFloat16*>(to),
       end - begin);
    }
  });
}

void copy(Tensor x, Tensor y, int threads) {
  const bool contiguous = x.contiguous() && y.contiguous();
  for_each_stretch(threads, x, contiguous, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    void* from = element(x, row, begin);
    void* to = element(y, row, begin);
    if (x.dtype() == y.dtype()) {
      std::memmove(to, from, static_cast<std::size_t>((end - begin) * size_of(x.dtype())));
    } else if (x.dtype() == DType::kBF16) {
      HWY_DYNAMIC_DISPATCH(widen)(static_cast<const BFloat16*>(from), static_cast<float*>(to), end - begin);
    } else {
      HWY_DYNAMIC_DISPATCH(narrow)(static_cast<const float*>(from), static_cast<BFloat16*>(to), end - begin);
    }
  });
}

void zero(Tensor x, int threads) {
  for_each_stretch(threads, x, x.contiguous(), [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    std::memset(element(x, row, begin), 0, static_cast<std::size_t>((end - begin) * size_of(x.dtype())));
  });
}

}  // namespace slimpipe::device::cpu
#endif
