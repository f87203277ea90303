// Sixteen fp32 values as the unit of every vectorised loop, whatever the vectors' width: sums then have
// sixteen partial sums on every CPU, and differ between CPUs only where one lacks the fused multiply-add.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_LANES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_LANES_H_
#undef SLIMPIPE_DEVICE_CPU_LANES_H_
#else
#define SLIMPIPE_DEVICE_CPU_LANES_H_
#endif

#include <cstdint>
#include <cstring>
#include <hwy/highway.h>
#include <limits>

#include "slimpipe/core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kLanes = 16;

using FloatTag = hn::CappedTag<float, kLanes>;
using FloatVector = hn::Vec<FloatTag>;
using FloatMask = hn::Mask<FloatTag>;
inline constexpr std::int64_t kVectorLanes = hn::MaxLanes(FloatTag());
inline constexpr int kParts = static_cast<int>(kLanes / kVectorLanes);
static_assert(kParts * kVectorLanes == kLanes);

/// How much of a block of sixteen exists: all of it, or the first `count` at the end of a row.
struct Whole {};
struct Tail {
  std::int64_t count;
};

/// Calls body(offset, Whole or Tail) over [0, n) in blocks of sixteen.
template <class Body>
HWY_INLINE void for_each_block(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Tail{n - i});
}

struct Lanes {
  FloatVector part[kParts];
};

// Each applies `f` part by part; the loops vanish, their count is known.
template <class F>
HWY_INLINE Lanes map(const Lanes& a, const F& f) {
  Lanes r;
  for (int i = 0; i < kParts; ++i) r.part[i] = f(a.part[i]);
  return r;
}
template <class F>
HWY_INLINE Lanes map(const Lanes& a, const Lanes& b, const F& f) {
  Lanes r;
  for (int i = 0; i < kParts; ++i) r.part[i] = f(a.part[i], b.part[i]);
  return r;
}

HWY_INLINE Lanes broadcast(float value) {
  Lanes r;
  for (int i = 0; i < kParts; ++i) r.part[i] = hn::Set(FloatTag(), value);
  return r;
}
HWY_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
  return map(a, b, [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
}
HWY_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
  return map(a, b, [](auto x, auto y) HWY_ATTR { return hn::Sub(x, y); });
}
HWY_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
  return map(a, b, [](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); });
}
HWY_INLINE Lanes operator/(const Lanes& a, const Lanes& b) {
  return map(a, b, [](auto x, auto y) HWY_ATTR { return hn::Div(x, y); });
}
HWY_INLINE Lanes square_root(const Lanes& a) {
  return map(a, [](auto x) HWY_ATTR { return hn::Sqrt(x); });
}
/// a · b + c
HWY_INLINE Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes r;
  for (int i = 0; i < kParts; ++i) r.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return r;
}
/// c - a · b
HWY_INLINE Lanes negative_multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes r;
  for (int i = 0; i < kParts; ++i) r.part[i] = hn::NegMulAdd(a.part[i], b.part[i], c.part[i]);
  return r;
}
/// The larger; NaN in either may be lost, so it must not be relied on.
HWY_INLINE Lanes larger(const Lanes& a, const Lanes& b) {
  return map(a, b, [](auto x, auto y) HWY_ATTR { return hn::Max(x, y); });
}

// --- memory

HWY_INLINE Lanes load(const float* p, Whole /*extent*/) {
  Lanes r;
  for (int i = 0; i < kParts; ++i) r.part[i] = hn::LoadU(FloatTag(), p + i * kVectorLanes);
  return r;
}

HWY_INLINE Lanes load(const BFloat16* p, Whole /*extent*/) {
  const hn::Rebind<std::uint16_t, FloatTag> half;
  const hn::Rebind<std::uint32_t, FloatTag> word;
  Lanes r;
  for (int i = 0; i < kParts; ++i) {
    const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(p) + i * kVectorLanes);
    r.part[i] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(word, bits)));
  }
  return r;
}

HWY_INLINE void store(const Lanes& x, float* p, Whole /*extent*/) {
  for (int i = 0; i < kParts; ++i) hn::StoreU(x.part[i], FloatTag(), p + i * kVectorLanes);
}

/// Rounds exactly as BFloat16(float) does.
HWY_INLINE void store(const Lanes& x, BFloat16* p, Whole /*extent*/) {
  const hn::Rebind<std::uint16_t, FloatTag> half;
  const hn::Rebind<std::uint32_t, FloatTag> word;
  for (int i = 0; i < kParts; ++i) {
    const auto bits = hn::BitCast(word, x.part[i]);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(word, 1U));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(word, 0x7fffU)), odd));
    const auto quiet = hn::Or(upper, hn::Set(word, 0x40U));
    const auto is_nan = hn::RebindMask(word, hn::IsNaN(x.part[i]));
    hn::StoreU(hn::TruncateTo(half, hn::IfThenElse(is_nan, quiet, rounded)), half,
               reinterpret_cast<std::uint16_t*>(p) + i * kVectorLanes);
  }
}

/// What does not exist reads as `padding`. Nothing outside the row is touched.
template <class T>
HWY_INLINE Lanes load(const T* p, Tail extent, float padding = 0.0F) {
  alignas(64) T block[kLanes];
  for (T& value : block) value = T(padding);
  std::memcpy(block, p, static_cast<std::size_t>(extent.count) * sizeof(T));
  return load(block, Whole{});
}
template <class T>
HWY_INLINE Lanes load(const T* p, Whole extent, float /*padding*/) {
  return load(p, extent);
}

template <class T>
HWY_INLINE void store(const Lanes& x, T* p, Tail extent) {
  alignas(64) T block[kLanes];
  store(x, block, Whole{});
  std::memcpy(p, block, static_cast<std::size_t>(extent.count) * sizeof(T));
}

// --- across lanes, always in the same order

HWY_INLINE float sum_of_lanes(const Lanes& x) {
  alignas(64) float lane[kLanes];
  store(x, lane, Whole{});
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

HWY_INLINE float largest_lane(const Lanes& x) {
  alignas(64) float lane[kLanes];
  store(x, lane, Whole{});
  float largest = lane[0];
  for (const float value : lane) largest = value > largest ? value : largest;
  return largest;
}

/// Sum over [0, n) of what term(offset, extent, sum) adds to sixteen fp32 partial sums; these go into a
/// double every few thousand elements, so that the error does not grow with n.
template <class Term>
HWY_INLINE double long_sum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kStretch = 4096;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kStretch) {
    const std::int64_t length = n - begin < kStretch ? n - begin : kStretch;
    Lanes sum = broadcast(0.0F);
    for_each_block(length, [&](std::int64_t i, auto extent) HWY_ATTR { sum = term(begin + i, extent, sum); });
    total += static_cast<double>(sum_of_lanes(sum));
  }
  return total;
}

// --- functions

/// e^x for x <= 0, within 2 units in the last place; 0 below -87.3, where results would be denormal.
/// NaN stays NaN.
HWY_INLINE Lanes exp_of_nonpositive(const Lanes& x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  return map(x, [d, di](auto v) HWY_ATTR {
    // x = n ln2 + r with |r| <= ln2 / 2. Adding 1.5 · 2^23 rounds to an integer that is then found in the
    // low bits; ln2 is taken off in two parts, the first of which is exact in a product with n.
    const auto magic = hn::Set(d, 12582912.0F);
    const auto shifted = hn::MulAdd(v, hn::Set(d, 1.44269504F), magic);
    const auto n = hn::Sub(shifted, magic);
    auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), v);
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
    // Taylor's series: its first dropped term is 5e-9 at the ends of the interval.
    auto series = hn::Set(d, 1.0F / 5040.0F);
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 720.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 120.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 24.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 1.0F / 6.0F));
    series = hn::MulAdd(series, r, hn::Set(d, 0.5F));
    const auto mantissa = hn::Add(hn::MulAdd(hn::Mul(r, r), series, r), hn::Set(d, 1.0F));
    const auto biased = hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127));
    const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(biased));
    return hn::IfThenElse(hn::Lt(v, hn::Set(d, -87.3F)), hn::Zero(d), hn::Mul(mantissa, scale));
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
