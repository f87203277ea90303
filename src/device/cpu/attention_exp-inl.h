// 2^x for the softmax.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_EXP_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_EXP_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_EXP_INL_H_
#endif

#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// 2^x for x < 128, relative error below 2e-7; 0 for x <= -127 and -infinity. NaN stays NaN.
HWY_INLINE FloatVector exp2_of(FloatVector x) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  // NaN passes: the maximum is the second operand where they do not compare.
  x = hn::Max(hn::Set(d, -127.0F), x);
  // x = n + f with |f| <= 1/2. Adding 1.5 · 2^23 leaves n in the low bits of the sum; adding 127 with it
  // leaves there the biased exponent of 2^n, which is 0, the number zero, for n = -127.
  const auto magic = hn::Set(d, 12582912.0F + 127.0F);
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  // Polynomial of least relative error on [-1/2, 1/2], its constant rounded to 1.
  auto p = hn::Set(d, 0.00132764725F);
  p = hn::MulAdd(p, f, hn::Set(d, 0.00967554096F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.0555071309F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.240221202F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.693146944F));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
  return hn::Mul(p, power);
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
