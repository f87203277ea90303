// Every instruction set this CPU has gives right results; those with a fused multiply-add, equal ones.
#include <functional>
#include <hwy/targets.h>
#include <string>
#include <vector>

#include "slimpipe/core/split_float.h"

#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

/// Lets Highway choose among `targets` alone while it lives.
class OnlyTargets {
 public:
  explicit OnlyTargets(std::int64_t targets) { hwy::SetSupportedTargetsForTest(targets); }
  ~OnlyTargets() { hwy::SetSupportedTargetsForTest(0); }
  OnlyTargets(const OnlyTargets&) = delete;
  OnlyTargets& operator=(const OnlyTargets&) = delete;
};

/// Results of one operator each, of sizes with tails.
std::vector<OwnedTensor> results_of(DType dtype) {
  constexpr std::int64_t kTokens = 67;
  constexpr std::int64_t kSize = 85;
  CpuDevice d;
  Operators& operators = d.operators();
  const OwnedTensor x = normal(dtype, {kTokens, kSize}, 1, 2.0);
  const OwnedTensor dy = normal(dtype, {kTokens, kSize}, 2);
  const OwnedTensor weight = normal(dtype, {kSize}, 3);
  const OwnedTensor gate_up = normal(dtype, {kTokens, 2 * kSize}, 4, 5.0);
  const OwnedTensor logits = normal(DType::kF32, {kTokens, kSize}, 5, 5.0);
  const OwnedTensor targets = integers({kTokens}, 6, -1, kSize);
  std::vector<OwnedTensor> results;
  const auto add = [&](OwnedTensor tensor) -> OwnedTensor& {
    return results.emplace_back(std::move(tensor));
  };
  results.reserve(18);

  OwnedTensor& y = add(OwnedTensor(dtype, {kTokens, kSize}));
  OwnedTensor& rstd = add(OwnedTensor(DType::kF32, {kTokens}));
  operators.rms_norm_forward(d.stream(), x, weight, 1e-5F, y, rstd);
  OwnedTensor& dx = add(OwnedTensor(dtype, {kTokens, kSize}));
  OwnedTensor& d_weight = add(constant(DType::kF32, {kSize}, 0));
  operators.rms_norm_backward(d.stream(), dy, x, weight, rstd, Tensor(), dx, d_weight,
                              d.workspace(operators.rms_norm_backward_workspace_bytes(kTokens, kSize)));
  operators.swiglu_forward(d.stream(), gate_up, add(OwnedTensor(dtype, {kTokens, kSize})));
  operators.swiglu_backward(d.stream(), dy, gate_up, add(OwnedTensor(dtype, {kTokens, 2 * kSize})));
  OwnedTensor& loss = add(constant(DType::kF64, {1}, 0));
  operators.cross_entropy(d.stream(), logits, targets, 0.5F, loss, add(OwnedTensor(dtype, {kTokens, kSize})));
  const OwnedTensor o_part = normal(dtype, {kTokens, 1, 88}, 12);
  const OwnedTensor lse_part = normal(DType::kF32, {1, kTokens}, 13, 3.0);
  OwnedTensor& o = add(normal(dtype, {kTokens, 1, 88}, 14));
  operators.merge_attention(d.stream(), o_part, lse_part, o, add(normal(DType::kF32, {1, kTokens}, 15, 3.0)));
  operators.sum_of_squares(d.stream(), logits, add(OwnedTensor(DType::kF64, {1})));
  operators.copy(d.stream(), logits, add(OwnedTensor(dtype, {kTokens, kSize})));
  OwnedTensor& parameter = add(normal(DType::kF32, {kSize}, 7));
  OwnedTensor& moment1 = add(normal(DType::kF32, {kSize}, 8));
  OwnedTensor& moment2 = add(constant(DType::kF32, {kSize}, 0.5));
  operators.adamw(d.stream(), {.parameter = parameter,
                               .gradient = d_weight,
                               .moment1 = moment1,
                               .moment2 = moment2,
                               .learning_rate = 0.1,
                               .weight_decay = 0.1});
  const OwnedTensor halves = normal(DType::kBF16, {kSize}, 7);
  const OwnedTensor remainder(DType::kI16, {kSize});
  fill_integers(remainder, 11, -0x8000, 0x8000);
  operators.adamw(d.stream(), {.parameter = halves,
                               .remainder = remainder,
                               .gradient = d_weight,
                               .moment1 = moment1,
                               .moment2 = moment2,
                               .learning_rate = 0.1,
                               .weight_decay = 0.1});
  // Joined: where values differ in the last place, their halves are no measure.
  OwnedTensor& joined = add(OwnedTensor(DType::kF32, {kSize}));
  for (std::int64_t i = 0; i < kSize; ++i) {
    joined.view().as<float>()[i] =
        join({halves.view().as<BFloat16>()[i], remainder.view().as<std::int16_t>()[i]});
  }
  return results;
}

}  // namespace

TEST_CASE("every instruction set agrees with the best one, bitwise where it has fused multiply-adds",
          "[ops]") {
  const std::int64_t supported = hwy::SupportedTargets();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<OwnedTensor> best = results_of(dtype);
    for (const std::int64_t target : {std::int64_t{HWY_AVX3}, std::int64_t{HWY_AVX2}, std::int64_t{HWY_SSE4},
                                      std::int64_t{HWY_NEON}, std::int64_t{HWY_STATIC_TARGET}}) {
      if ((supported & target) == 0) continue;
      INFO(name_of(dtype) << " on " << hwy::TargetName(target));
      const OnlyTargets only(target);
      const std::vector<OwnedTensor> results = results_of(dtype);
      REQUIRE(results.size() == best.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        INFO("result " << i);
        CHECK(results[i].intact());
        if (target == HWY_AVX3 || target == HWY_AVX2)
          CHECK(results[i].bytes() == best[i].bytes());
        else
          CHECK(compare(results[i], values_of(best[i]), 2, 10) == kAgrees);
      }
    }
  }
}

}  // namespace slimpipe::device
