#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "slimpipe/core/random.h"

namespace slimpipe::data {

// The swap-or-not shuffle (Hoang, Morris, Rogaway, CRYPTO 2012). A round pairs x with pivot - x modulo n and
// swaps the pair by a coin that both of its members see, so each round is a permutation whatever n is.
std::int64_t permute(std::uint64_t key, std::int64_t n, std::int64_t x) {
  // The paper's bound wants a few times log2(n) rounds; the constant serves windows of a few samples, where
  // a round swaps with a probability of only 1/4.
  const int rounds = 32 + 6 * static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n)));
  for (int round = 0; round < rounds; ++round) {
    const RandomStream pivots{RandomStream::Use::kSampleOrder, static_cast<std::uint32_t>(2 * round)};
    const RandomStream coins{RandomStream::Use::kSampleOrder, static_cast<std::uint32_t>(2 * round + 1)};
    const auto pivot = static_cast<std::int64_t>(random_u64(key, pivots, 0) % static_cast<std::uint64_t>(n));
    const std::int64_t partner = pivot >= x ? pivot - x : pivot - x + n;
    const auto pair = static_cast<std::uint64_t>(std::max(x, partner));
    if ((random_u64(key, coins, pair) & 1U) != 0) x = partner;
  }
  return x;
}

}  // namespace slimpipe::data
