#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

constexpr std::int64_t kSizes[] = {1, 3, 17, 63, 65, 1000};

OwnedTensor gates(DType dtype, std::int64_t tokens, std::int64_t size, std::int64_t padding = 0) {
  OwnedTensor result = OwnedTensor::padded(dtype, tokens, 2 * size, 2 * size + padding);
  fill_normal(result, 1, 3.0);
  return result;
}

}  // namespace

TEST_CASE("SwiGLU agrees with double precision", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t size : kSizes) {
      INFO(name_of(dtype) << " " << size);
      const OwnedTensor gate_up = gates(dtype, 3, size, 5);
      const OwnedTensor y(dtype, {3, size});
      device.operators().swiglu_forward(device.stream(), gate_up, y);
      CHECK(compare(y, reference_swiglu(values_of(gate_up), size)) == kAgrees);
      CHECK(y.intact());
    }
}

TEST_CASE("SwiGLU holds for huge, infinite and NaN gates", "[ops]") {
  CpuDevice device;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const Values gate = {-200, -90, -87.3, -88, 0, 88, 200, 1e30, -1e30, kInfinity, kNaN};
  const auto size = std::ssize(gate);
  Values both = gate;
  both.resize(gate.size() * 2, 1.0);
  OwnedTensor gate_up(DType::kF32, {1, 2 * size});
  fill_values(gate_up, both);
  const OwnedTensor y(DType::kF32, {1, size});
  device.operators().swiglu_forward(device.stream(), gate_up, y);
  CHECK(compare(y, reference_swiglu(both, size)) == kAgrees);

  const OwnedTensor dy = constant(DType::kF32, {1, size}, 1.0);
  const OwnedTensor gradient(DType::kF32, {1, 2 * size});
  device.operators().swiglu_backward(device.stream(), dy, gate_up, gradient);
  const Values slopes = values_of(gradient);
  for (std::size_t i = 0; i + 2 < gate.size(); ++i) {
    INFO("gate " << gate[i] << " slope " << slopes[i]);
    CHECK(std::abs(slopes[i] - (gate[i] > 0 ? 1 : gate[i] == 0 ? 0.5 : 0)) < 1e-6);
  }
  CHECK(std::isnan(slopes[gate.size() - 1]));
}

TEST_CASE("the backward of SwiGLU agrees with double precision, in place too", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t size : kSizes)
      for (const bool in_place : {false, true}) {
        INFO(name_of(dtype) << " " << size << " in place " << in_place);
        const OwnedTensor gate_up = gates(dtype, 3, size, in_place ? 3 : 0);
        const OwnedTensor dy = normal(dtype, {3, size}, 2);
        const OwnedTensor separate(dtype, {3, 2 * size});
        const Values expected = reference_swiglu_backward(values_of(dy), values_of(gate_up), size);
        const Tensor result = in_place ? gate_up.view() : separate.view();
        device.operators().swiglu_backward(device.stream(), dy, gate_up, result);
        CHECK(compare(result, expected, 1, 2) == kAgrees);
        CHECK((gate_up.intact() && separate.intact()));
      }
}

TEST_CASE("the backward of SwiGLU is the derivative of its forward", "[ops]") {
  CpuDevice device;
  const std::int64_t size = 17;
  const OwnedTensor gate_up = gates(DType::kF32, 2, size);
  const OwnedTensor dy = normal(DType::kF32, {2, size}, 2);
  const OwnedTensor gradient(DType::kF32, {2, 2 * size});
  device.operators().swiglu_backward(device.stream(), dy, gate_up, gradient);
  const Values direction = values_of(dy);
  CHECK(compare(gradient,
                numeric_gradient([&](const Values& x) { return dot(direction, reference_swiglu(x, size)); },
                                 values_of(gate_up)),
                1, 2) == kAgrees);
}

TEST_CASE("SwiGLU does not depend on the number of threads", "[ops]") {
  CpuDevice one;
  CpuDevice three(3);
  const OwnedTensor gate_up = gates(DType::kBF16, 65, 63);
  const OwnedTensor first(DType::kBF16, {65, 63});
  const OwnedTensor second(DType::kBF16, {65, 63});
  one.operators().swiglu_forward(one.stream(), gate_up, first);
  three.operators().swiglu_forward(three.stream(), gate_up, second);
  CHECK(first.bytes() == second.bytes());
}

}  // namespace slimpipe::device
