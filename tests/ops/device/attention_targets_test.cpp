// Attention on every instruction set this CPU has: each has its own tile shape and its own tails, and bf16
// tensors take fp32 products where there are none of bf16.

// simd_targets.h must come first, so that the targets listed are those that are compiled.
// clang-format off
#include "device/cpu/simd_targets.h"
#include <hwy/targets.h>
// clang-format on

#include <cstdint>

#include "support/attention_case.h"
#include "support/catch.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

/// Lets Highway choose one target alone while it lives.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnlyTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

}  // namespace

TEST_CASE("attention equals its definition on every instruction set", "[ops]") {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    INFO("target " << hwy::TargetName(target));
    for (const std::int64_t head_size : {8, 24, 64, 136})
      check_both_types({.tokens = 75, .heads = 2, .head_size = head_size, .query_position = 30});
    check_both_types({.tokens = 131,
                      .heads = 2,
                      .kv_heads = 2,
                      .head_size = 40,
                      .query_position = 90,
                      .blocks = {90, 70, 61},
                      .documents = {0, 93, 129, 180}});
    check_both_types({.tokens = 30, .head_size = 16, .query_position = 10, .blocks = {30}, .first_key = 20});
  }
}

}  // namespace slimpipe::device
