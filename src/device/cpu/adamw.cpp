// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include <cmath>

#include "device/cpu/adamw.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// One pass over memory: `compute` (the bf16 copy) may be null.
void update(float* parameter, const float* gradient, float* moment1, float* moment2, BFloat16* compute,
            const AdamWConstants& c, std::int64_t n) {
  for_each_block(n, [=](std::int64_t i, auto extent) HWY_ATTR {
    const Lanes g = load(gradient + i, extent) * broadcast(c.gradient_scale);
    const Lanes m =
        multiply_add(broadcast(c.beta1), load(moment1 + i, extent), broadcast(c.one_minus_beta1) * g);
    const Lanes v =
        multiply_add(broadcast(c.beta2), load(moment2 + i, extent), broadcast(c.one_minus_beta2) * g * g);
    const Lanes denominator =
        multiply_add(square_root(v), broadcast(c.inverse_root_correction), broadcast(c.epsilon));
    const Lanes decayed = load(parameter + i, extent) * broadcast(c.decay);
    const Lanes p = negative_multiply_add(broadcast(c.step_size), m / denominator, decayed);
    store(m, moment1 + i, extent);
    store(v, moment2 + i, extent);
    store(p, parameter + i, extent);
    if (compute != nullptr) store(p, compute + i, extent);
  });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(update);

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
  BFloat16* compute = step.compute.empty() ? nullptr : step.compute.as<BFloat16>();
  parallel_ranges(threads, step.parameter.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(update)
    (step.parameter.as<float>() + begin, step.gradient.as<float>() + begin, step.moment1.as<float>() + begin,
     step.moment2.as<float>() + begin, compute == nullptr ? nullptr : compute + begin, constants,
     end - begin);
  });
}

}  // namespace slimpipe::device::cpu
#endif
