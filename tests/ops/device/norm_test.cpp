#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

constexpr float kEpsilon = 1e-5F;
constexpr std::int64_t kSizes[] = {1, 3, 16, 17, 63, 65, 1000, 5000};

}  // namespace

TEST_CASE("RMSNorm agrees with double precision", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t hidden : kSizes)
      for (const std::int64_t tokens : {1, 5}) {
        INFO(name_of(dtype) << " [" << tokens << ", " << hidden << "]");
        OwnedTensor x = OwnedTensor::padded(dtype, tokens, hidden, hidden + 3);
        fill_normal(x, 1, 2.0, 0.5);
        const OwnedTensor weight = normal(dtype, {hidden}, 2, 0.3, 1.0);
        const OwnedTensor y(dtype, {tokens, hidden});
        const OwnedTensor rstd(DType::kF32, {tokens});
        device.operators().rms_norm_forward(device.stream(), x, weight, kEpsilon, y, rstd);
        const RmsNormResult expected = reference_rms_norm(values_of(x), values_of(weight), double{kEpsilon});
        CHECK(compare(y, expected.y) == kAgrees);
        CHECK(compare(rstd, expected.rstd) == kAgrees);
        CHECK((y.intact() && rstd.intact()));
      }
}

TEST_CASE("RMSNorm of zeros is zero and of tiny values finite", "[ops]") {
  CpuDevice device;
  for (const double value : {0.0, 1e-30}) {
    const OwnedTensor x = constant(DType::kF32, {2, 33}, value);
    const OwnedTensor weight = constant(DType::kF32, {33}, 1.0);
    const OwnedTensor y(DType::kF32, {2, 33});
    const OwnedTensor rstd(DType::kF32, {2});
    device.operators().rms_norm_forward(device.stream(), x, weight, kEpsilon, y, rstd);
    CHECK(compare(y, reference_rms_norm(values_of(x), values_of(weight), double{kEpsilon}).y) == kAgrees);
  }
}

TEST_CASE("addition and RMSNorm in one agree with the two apart, in place too", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t hidden : kSizes)
      for (const int alias : {0, 1, 2}) {
        INFO(name_of(dtype) << " hidden " << hidden << " alias " << alias);
        const std::int64_t tokens = 3;
        const OwnedTensor x = normal(dtype, {tokens, hidden}, 1);
        const OwnedTensor residual = normal(dtype, {tokens, hidden}, 2);
        const OwnedTensor weight = normal(dtype, {hidden}, 3);
        Values expected_sum = values_of(x);
        const Values other = values_of(residual);
        for (std::size_t i = 0; i < other.size(); ++i)
          expected_sum[i] = rounded_to(dtype, expected_sum[i] + other[i]);
        const OwnedTensor separate(dtype, {tokens, hidden});
        const Tensor sum = alias == 0 ? separate.view() : alias == 1 ? x.view() : residual.view();
        const OwnedTensor y(dtype, {tokens, hidden});
        const OwnedTensor rstd(DType::kF32, {tokens});
        device.operators().add_rms_norm_forward(device.stream(), x, residual, weight, kEpsilon, sum, y, rstd);
        CHECK(compare(sum, expected_sum) == kAgrees);
        const RmsNormResult expected = reference_rms_norm(expected_sum, values_of(weight), double{kEpsilon});
        CHECK(compare(y, expected.y) == kAgrees);
        CHECK(compare(rstd, expected.rstd) == kAgrees);
      }
}

namespace {

/// Runs the backward of RMSNorm with what the forward saved; d_weight starts from ones.
struct BackwardRun {
  OwnedTensor x, weight, dy, dx, d_weight;

  BackwardRun(CpuDevice& device, DType dtype, std::int64_t tokens, std::int64_t hidden, bool with_residual)
      : x(normal(dtype, {tokens, hidden}, 1)),
        weight(normal(dtype, {hidden}, 2, 0.5, 1.0)),
        dy(normal(dtype, {tokens, hidden}, 3)),
        dx(normal(dtype, {tokens, hidden}, 4)),
        d_weight(constant(DType::kF32, {hidden}, 1.0)) {
    const OwnedTensor y(dtype, {tokens, hidden});
    const OwnedTensor rstd(DType::kF32, {tokens});
    Operators& operators = device.operators();
    operators.rms_norm_forward(device.stream(), x, weight, kEpsilon, y, rstd);
    residual = values_of(dx);  // dx holds the residual gradient and is overwritten in place
    const Tensor workspace = device.workspace(operators.rms_norm_backward_workspace_bytes(tokens, hidden));
    operators.rms_norm_backward(device.stream(), dy, x, weight, rstd, with_residual ? dx.view() : Tensor(),
                                dx, d_weight, workspace);
  }
  Values residual;
};

}  // namespace

TEST_CASE("the backward of RMSNorm agrees with double precision", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t hidden : kSizes)
      for (const std::int64_t tokens : {1, 64, 131})
        for (const bool with_residual : {false, true}) {
          INFO(name_of(dtype) << " [" << tokens << ", " << hidden << "] residual " << with_residual);
          const BackwardRun run(device, dtype, tokens, hidden, with_residual);
          RmsNormGradients expected = reference_rms_norm_backward(values_of(run.dy), values_of(run.x),
                                                                  values_of(run.weight), double{kEpsilon});
          for (double& value : expected.d_weight) value += 1;
          for (std::size_t i = 0; with_residual && i < expected.dx.size(); ++i)
            expected.dx[i] += run.residual[i];
          // One value alone is its own norm: its gradient cancels almost wholly, so errors are measured
          // against the terms.
          const double scale = hidden == 1 ? 100 : 4;
          CHECK(compare(run.dx, expected.dx, 1, scale) == kAgrees);
          CHECK(compare(run.d_weight, expected.d_weight, 1, 12) == kAgrees);
          CHECK((run.dx.intact() && run.d_weight.intact()));
        }
}

TEST_CASE("the backward of RMSNorm is the derivative of its forward", "[ops]") {
  CpuDevice device;
  const BackwardRun run(device, DType::kF32, 3, 17, false);
  const Values dy = values_of(run.dy);
  const Values x = values_of(run.x);
  const Values weight = values_of(run.weight);
  const Values by_x = numeric_gradient(
      [&](const Values& at_x) { return dot(dy, reference_rms_norm(at_x, weight, double{kEpsilon}).y); }, x);
  Values by_weight = numeric_gradient(
      [&](const Values& at_weight) { return dot(dy, reference_rms_norm(x, at_weight, double{kEpsilon}).y); },
      weight);
  for (double& value : by_weight) value += 1;
  CHECK(compare(run.dx, by_x, 1, 4) == kAgrees);
  CHECK(compare(run.d_weight, by_weight, 1, 4) == kAgrees);
}

TEST_CASE("the backward of RMSNorm gives the same bits each time and for any number of threads", "[ops]") {
  CpuDevice one;
  CpuDevice two(2);
  const BackwardRun first(one, DType::kBF16, 200, 65, true);
  const BackwardRun again(one, DType::kBF16, 200, 65, true);
  const BackwardRun threaded(two, DType::kBF16, 200, 65, true);
  CHECK(first.dx.bytes() == again.dx.bytes());
  CHECK(first.d_weight.bytes() == again.d_weight.bytes());
  CHECK(first.dx.bytes() == threaded.dx.bytes());
  CHECK(first.d_weight.bytes() == threaded.d_weight.bytes());
}

}  // namespace slimpipe::device
