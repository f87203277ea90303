#pragma once
// Seeded random specs for properties that must hold for every schedule.

#include <algorithm>
#include <cstdint>

#include "slimpipe/core/random.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// Draws numbers in a row; the seed reproduces them.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  /// Uniform in [low, high].
  int roll(int low, int high) {
    const auto word = random_u64(seed_, {RandomStream::Use::kTest}, index_++);
    return low + static_cast<int>(word % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

struct SpecRange {
  int max_p = 8;
  int max_v = 4;
  int max_m = 6;
  int max_n = 24;  ///< or the least that a kind needs
};

/// Any kind whose spec has no problems; δ <= 7.
inline Spec random_spec(Dice& dice, const SpecRange& range) {
  Spec spec{.kind = *kind_from_name(kind_names()[dice.roll(0, 7)]),
            .pipeline = dice.roll(1, range.max_p),
            .virtual_stages = 1,
            .microbatches = dice.roll(1, range.max_m),
            .slices = 1,
            .warmup_slope = dice.roll(1, 7)};
  const bool any_chunks = spec.kind == Kind::kSlimPipe || spec.kind == Kind::kSlimPipeZb;
  if (any_chunks) spec.virtual_stages = dice.roll(1, range.max_v);
  if (spec.kind == Kind::kInterleaved) spec.virtual_stages = dice.roll(2, std::max(2, range.max_v));
  if (placement_of(spec.kind) == Placement::kVee) spec.virtual_stages = 2;
  const int least_slices = spec.virtual_stages > 1 ? spec.pipeline : 1;
  if (is_sliced(spec.kind)) spec.slices = dice.roll(least_slices, std::max(least_slices, range.max_n));
  if (!problems(spec).empty()) spec.warmup_slope = dice.roll(1, 2);
  return spec;
}

/// A kind that the exchange of attention context can be planned for; δ = 2.
inline Spec random_lockstep_spec(Dice& dice, int max_p, int max_v) {
  Spec spec{.kind = dice.roll(0, 3) == 0 ? Kind::kTeraPipe : Kind::kSlimPipe,
            .pipeline = dice.roll(1, max_p),
            .microbatches = dice.roll(1, 4)};
  if (spec.kind == Kind::kSlimPipe) spec.virtual_stages = dice.roll(1, max_v);
  spec.slices = dice.roll(spec.virtual_stages > 1 ? spec.pipeline : 1, 8 * spec.pipeline);
  return spec;
}

}  // namespace slimpipe::schedule
