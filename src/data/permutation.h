#pragma once
// A pseudorandom permutation of [0, n) for any n, computed one element at a time.

#include <cstdint>

namespace slimpipe::data {

/// Where element `x` of [0, n) goes under the permutation named by `key`. A pure function: no table to
/// build, to cache or to guard, so that a window of any size costs the same.
[[nodiscard]] std::int64_t permute(std::uint64_t key, std::int64_t n, std::int64_t x);

}  // namespace slimpipe::data
