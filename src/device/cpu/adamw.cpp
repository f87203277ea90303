// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <cmath>
#include <cstring>

#include "device/cpu/adamw.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// Parameters as fp32 values in one array.
struct WholeValues {
  float* values;

  template <class Extent>
  HWY_INLINE Lanes load_at(std::int64_t i, Extent extent) const {
    return load(values + i, extent);
  }
  template <class Extent>
  HWY_INLINE void store_at(const Lanes& x, std::int64_t i, Extent extent) const {
    store(x, values + i, extent);
  }
};

/// Parameters as bf16 weights and remainders: the vector form of core/split_float.h.
struct SplitValues {
  std::uint16_t* weights;
  std::int16_t* remainders;

  HWY_INLINE Lanes load_at(std::int64_t i, Whole /*extent*/) const {
    const hn::Rebind<std::int16_t, FloatTag> half;
    const hn::Rebind<std::int32_t, FloatTag> word;
    Lanes r;
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t at = i + part * kVectorLanes;
      const auto upper = hn::PromoteTo(hn::RebindToUnsigned<decltype(word)>(),
                                       hn::LoadU(hn::RebindToUnsigned<decltype(half)>(), weights + at));
      const auto lower = hn::PromoteTo(word, hn::LoadU(half, remainders + at));
      r.part[part] = hn::BitCast(FloatTag(), hn::Add(hn::BitCast(word, hn::ShiftLeft<16>(upper)), lower));
    }
    return r;
  }
  HWY_INLINE void store_at(const Lanes& x, std::int64_t i, Whole /*extent*/) const {
    const hn::Rebind<std::uint16_t, FloatTag> half;
    const hn::Rebind<std::uint32_t, FloatTag> word;
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t at = i + part * kVectorLanes;
      const auto bits = hn::BitCast(word, x.part[part]);
      const auto upper = hn::ShiftRight<16>(hn::Add(bits, hn::Set(word, 0x8000U)));
      hn::StoreU(hn::TruncateTo(half, upper), half, weights + at);
      hn::StoreU(hn::TruncateTo(half, bits), half, reinterpret_cast<std::uint16_t*>(remainders) + at);
    }
  }
  HWY_INLINE Lanes load_at(std::int64_t i, Tail extent) const {
    alignas(64) std::uint16_t weight[kLanes] = {};
    alignas(64) std::int16_t remainder[kLanes] = {};
    const auto bytes = static_cast<std::size_t>(extent.count) * sizeof(std::uint16_t);
    std::memcpy(weight, weights + i, bytes);
    std::memcpy(remainder, remainders + i, bytes);
    return SplitValues{weight, remainder}.load_at(0, Whole{});
  }
  HWY_INLINE void store_at(const Lanes& x, std::int64_t i, Tail extent) const {
    alignas(64) std::uint16_t weight[kLanes];
    alignas(64) std::int16_t remainder[kLanes];
    SplitValues{weight, remainder}.store_at(x, 0, Whole{});
    const auto bytes = static_cast<std::size_t>(extent.count) * sizeof(std::uint16_t);
    std::memcpy(weights + i, weight, bytes);
    std::memcpy(remainders + i, remainder, bytes);
  }
};

/// One pass over memory.
template <class Values>
void update(Values parameter, const float* gradient, float* moment1, float* moment2, const AdamWConstants& c,
            std::int64_t n) {
  for_each_block(n, [=](std::int64_t i, auto extent) HWY_ATTR {
    const Lanes g = load(gradient + i, extent) * broadcast(c.gradient_scale);
    const Lanes m =
        multiply_add(broadcast(c.beta1), load(moment1 + i, extent), broadcast(c.one_minus_beta1) * g);
    const Lanes v =
        multiply_add(broadcast(c.beta2), load(moment2 + i, extent), broadcast(c.one_minus_beta2) * g * g);
    const Lanes denominator =
        multiply_add(square_root(v), broadcast(c.inverse_root_correction), broadcast(c.epsilon));
    const Lanes decayed = parameter.load_at(i, extent) * broadcast(c.decay);
    const Lanes p = negative_multiply_add(broadcast(c.step_size), m / denominator, decayed);
    store(m, moment1 + i, extent);
    store(v, moment2 + i, extent);
    parameter.store_at(p, i, extent);
  });
}

/// Elements [begin, end) of a step's tensors.
void update_range(const AdamW& step, const AdamWConstants& constants, std::int64_t begin, std::int64_t end) {
  const auto run = [&](auto values) {
    update(values, step.gradient.as<float>() + begin, step.moment1.as<float>() + begin,
           step.moment2.as<float>() + begin, constants, end - begin);
  };
  if (step.parameter.dtype() == DType::kF32) {
    run(WholeValues{step.parameter.as<float>() + begin});
  } else {
    run(SplitValues{reinterpret_cast<std::uint16_t*>(step.parameter.as<BFloat16>() + begin),
                    step.remainder.as<std::int16_t>() + begin});
  }
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(update_range);

void adamw(const AdamW& step, int threads) {
  const auto count = static_cast<double>(step.step);
  const AdamWConstants constants{
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .beta1 = static_cast<float>(step.beta1),
      .one_minus_beta1 = static_cast<float>(1 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .one_minus_beta2 = static_cast<float>(1 - step.beta2),
      .decay = static_cast<float>(1 - step.learning_rate * step.weight_decay),
      .step_size = static_cast<float>(step.learning_rate / (1 - std::pow(step.beta1, count))),
      .inverse_root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, count))),
      .epsilon = static_cast<float>(step.epsilon)};
  constexpr std::int64_t kGrain = 16384;
  parallel_ranges(threads, step.parameter.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(update_range)(step, constants, begin, end);
  });
}

}  // namespace slimpipe::device::cpu
#endif
