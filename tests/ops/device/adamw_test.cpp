#include <cmath>

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

struct Parameter {
  OwnedTensor value, moment1, moment2, compute;
  explicit Parameter(std::int64_t n)
      : value(normal(DType::kF32, {n}, 1)),
        moment1(constant(DType::kF32, {n}, 0)),
        moment2(constant(DType::kF32, {n}, 0)),
        compute(DType::kBF16, {n}) {}

  [[nodiscard]] AdamW step(const OwnedTensor& gradient, std::int64_t number) const {
    return {.parameter = value,
            .gradient = gradient,
            .moment1 = moment1,
            .moment2 = moment2,
            .compute = compute,
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

TEST_CASE("AdamW agrees with double precision over three steps, bf16 copy included", "[ops]") {
  CpuDevice device;
  for (const std::int64_t n : {1, 3, 17, 63, 65, 1000, 40000}) {
    INFO(n << " elements");
    const Parameter parameter(n);
    AdamWState state{values_of(parameter.value), zeros(n), zeros(n)};
    for (std::int64_t step = 1; step <= 3; ++step) {
      const OwnedTensor gradient = normal(DType::kF32, {n}, static_cast<std::uint64_t>(10 + step));
      device.operators().adamw(device.stream(), parameter.step(gradient, step));
      reference_adamw(state, values_of(gradient), kSettings, step);
      CHECK(compare(parameter.value, state.parameter) == kAgrees);
      CHECK(compare(parameter.moment1, state.moment1) == kAgrees);
      CHECK(compare(parameter.moment2, state.moment2) == kAgrees);
      Values rounded = values_of(parameter.value);
      for (double& value : rounded) value = rounded_to(DType::kBF16, value);
      CHECK(values_of(parameter.compute) == rounded);
    }
    CHECK((parameter.value.intact() && parameter.moment1.intact() && parameter.moment2.intact()));
    CHECK(parameter.compute.intact());
  }
}

TEST_CASE("AdamW without a bf16 copy updates the same", "[ops]") {
  CpuDevice device;
  const Parameter with(65);
  const Parameter without(65);
  const OwnedTensor gradient = normal(DType::kF32, {65}, 3);
  device.operators().adamw(device.stream(), with.step(gradient, 1));
  AdamW step = without.step(gradient, 1);
  step.compute = Tensor();
  device.operators().adamw(device.stream(), step);
  CHECK(with.value.bytes() == without.value.bytes());
}

TEST_CASE("AdamW leaves a parameter without gradient and decay as it was", "[ops]") {
  CpuDevice device;
  const Parameter parameter(33);
  const Values before = values_of(parameter.value);
  const OwnedTensor zero = constant(DType::kF32, {33}, 0);
  AdamW step = parameter.step(zero, 1);
  step.weight_decay = 0;
  device.operators().adamw(device.stream(), step);
  CHECK(values_of(parameter.value) == before);
}

TEST_CASE("AdamW does not depend on the number of threads", "[ops]") {
  CpuDevice one;
  CpuDevice two(2);
  const Parameter first(50001);
  const Parameter second(50001);
  const OwnedTensor gradient = normal(DType::kF32, {50001}, 3);
  one.operators().adamw(one.stream(), first.step(gradient, 1));
  two.operators().adamw(two.stream(), second.step(gradient, 1));
  CHECK(first.value.bytes() == second.value.bytes());
  CHECK(first.compute.bytes() == second.compute.bytes());
}

}  // namespace slimpipe::device
