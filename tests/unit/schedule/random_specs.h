#pragma once
// Seeded random specs for properties that must hold for every schedule.

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

/// Any kind, p <= max_p, m <= max_m, n <= max_n, δ <= 7.
inline Spec random_spec(Dice& dice, int max_p, int max_m, int max_n) {
  Spec spec{.kind = static_cast<Kind>(dice.roll(0, 3)),
            .pipeline = dice.roll(1, max_p),
            .microbatches = dice.roll(1, max_m),
            .slices = dice.roll(1, max_n),
            .warmup_slope = dice.roll(1, 7)};
  if (!is_sliced(spec.kind)) spec.slices = 1;
  return spec;
}

}  // namespace slimpipe::schedule
