#pragma once
// Counter-based random numbers (Philox 4x32-10, Salmon et al., SC 2011): a value is a pure function of
// (seed, stream, index), so there is no generator state to save or restore and any layout of a run
// draws the same numbers.

#include <array>
#include <cstdint>

namespace slimpipe {

/// What a stream of numbers is for. `detail` tells apart e.g. the parameters or the epochs.
struct RandomStream {
  enum class Use : std::uint32_t { kParameterInit = 1, kSampleOrder = 2, kTest = 3 };
  Use use;
  std::uint32_t detail = 0;
};

/// Four independent 32-bit words of block `index`.
[[nodiscard]] std::array<std::uint32_t, 4> random_block(std::uint64_t seed, RandomStream stream,
                                                        std::uint64_t index);
/// Uniform 64-bit word of element `index`.
[[nodiscard]] std::uint64_t random_u64(std::uint64_t seed, RandomStream stream, std::uint64_t index);
/// Uniform in [0, 1) of element `index`, 53 bits.
[[nodiscard]] double random_uniform(std::uint64_t seed, RandomStream stream, std::uint64_t index);
/// Standard normal of element `index` (Box-Muller in double precision).
[[nodiscard]] double random_normal(std::uint64_t seed, RandomStream stream, std::uint64_t index);

}  // namespace slimpipe
