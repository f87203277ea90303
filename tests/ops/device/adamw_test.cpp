#include "slimpipe/core/split_float.h"

#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

constexpr AdamWSettings kSettings{.learning_rate = 1e-2,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .epsilon = 1e-8,
                                  .weight_decay = 0.1,
                                  .gradient_scale = 0.5};

/// fp32 values, or the same values split in two.
struct Parameter {
  OwnedTensor value, remainder, moment1, moment2;
  Parameter(DType dtype, std::int64_t n)
      : value(dtype, {n}),
        remainder(DType::kI16, {dtype == DType::kBF16 ? n : 0}),
        moment1(constant(DType::kF32, {n}, 0)),
        moment2(constant(DType::kF32, {n}, 0)) {
    const Values start = values_of(normal(DType::kF32, {n}, 1));
    for (std::int64_t i = 0; i < n; ++i) set(i, static_cast<float>(start[static_cast<std::size_t>(i)]));
  }

  [[nodiscard]] bool is_split() const { return value.view().dtype() == DType::kBF16; }
  void set(std::int64_t i, float x) const {
    if (!is_split()) {
      value.view().as<float>()[i] = x;
      return;
    }
    const SplitFloat parts = split(x);
    value.view().as<BFloat16>()[i] = parts.weight;
    remainder.view().as<std::int16_t>()[i] = parts.remainder;
  }
  [[nodiscard]] OwnedTensor joined() const {
    OwnedTensor all(DType::kF32, {value.view().size()});
    for (std::int64_t i = 0; i < value.view().size(); ++i) {
      all.view().as<float>()[i] =
          is_split() ? join({value.view().as<BFloat16>()[i], remainder.view().as<std::int16_t>()[i]})
                     : value.view().as<float>()[i];
    }
    return all;
  }
  [[nodiscard]] bool intact() const {
    return value.intact() && remainder.intact() && moment1.intact() && moment2.intact();
  }
  [[nodiscard]] AdamW step(const OwnedTensor& gradient, std::int64_t number) const {
    return {.parameter = value,
            .remainder = is_split() ? remainder.view() : Tensor(),
            .gradient = gradient,
            .moment1 = moment1,
            .moment2 = moment2,
            .learning_rate = kSettings.learning_rate,
            .beta1 = kSettings.beta1,
            .beta2 = kSettings.beta2,
            .epsilon = kSettings.epsilon,
            .weight_decay = kSettings.weight_decay,
            .gradient_scale = kSettings.gradient_scale,
            .step = number};
  }
};

}  // namespace

TEST_CASE("AdamW agrees with double precision over three steps, split values included", "[ops]") {
  CpuDevice device;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const std::int64_t n : {1, 3, 17, 63, 65, 1000, 40000}) {
    INFO(n << " elements of " << name_of(dtype));
    const Parameter parameter(dtype, n);
    AdamWState state{values_of(parameter.joined()), zeros(n), zeros(n)};
    for (std::int64_t step = 1; step <= 3; ++step) {
      const OwnedTensor gradient = normal(DType::kF32, {n}, static_cast<std::uint64_t>(10 + step));
      device.operators().adamw(device.stream(), parameter.step(gradient, step));
      reference_adamw(state, values_of(gradient), kSettings, step);
      CHECK(compare(parameter.joined(), state.parameter) == kAgrees);
      CHECK(compare(parameter.moment1, state.moment1) == kAgrees);
      CHECK(compare(parameter.moment2, state.moment2) == kAgrees);
    }
    CHECK(parameter.intact());
  }
}

TEST_CASE("AdamW on split values is AdamW on the whole values to the bit, weights the nearest", "[ops]") {
  CpuDevice device;
  for (const std::int64_t n : {1, 65, 40000}) {
    const Parameter whole(DType::kF32, n);
    const Parameter halves(DType::kBF16, n);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const OwnedTensor gradient = normal(DType::kF32, {n}, static_cast<std::uint64_t>(10 + step));
      device.operators().adamw(device.stream(), whole.step(gradient, step));
      device.operators().adamw(device.stream(), halves.step(gradient, step));
    }
    CHECK(halves.joined().bytes() == whole.value.bytes());
    bool nearest = true;
    for (std::int64_t i = 0; i < n; ++i) {
      const SplitFloat parts = split(whole.value.view().as<float>()[i]);
      nearest = nearest && parts.weight.bits == halves.value.view().as<BFloat16>()[i].bits;
    }
    CHECK(nearest);
  }
}

TEST_CASE("AdamW leaves a parameter without gradient and decay as it was", "[ops]") {
  CpuDevice device;
  const Parameter parameter(GENERATE(DType::kF32, DType::kBF16), 33);
  const Values before = values_of(parameter.joined());
  const OwnedTensor zero = constant(DType::kF32, {33}, 0);
  AdamW step = parameter.step(zero, 1);
  step.weight_decay = 0;
  device.operators().adamw(device.stream(), step);
  CHECK(values_of(parameter.joined()) == before);
}

TEST_CASE("AdamW does not depend on the number of threads", "[ops]") {
  CpuDevice one;
  CpuDevice two(2);
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  const Parameter first(dtype, 50001);
  const Parameter second(dtype, 50001);
  const OwnedTensor gradient = normal(DType::kF32, {50001}, 3);
  one.operators().adamw(one.stream(), first.step(gradient, 1));
  two.operators().adamw(two.stream(), second.step(gradient, 1));
  CHECK(first.value.bytes() == second.value.bytes());
  CHECK(first.remainder.bytes() == second.remainder.bytes());
}

}  // namespace slimpipe::device
