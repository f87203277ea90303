#pragma once
// A range shared among a device's threads. What a thread does for one index must not depend on the
// others', so the result is the same for any number of threads.

#include <algorithm>
#include <cstdint>

namespace slimpipe::device::cpu {

/// Starts the other threads that parallel_ranges() will use when called by this thread. Throws Error where
/// the system does not start so many. (OpenMP by itself would end the program, silently.)
void start_threads(int threads);

/// Calls body(begin, end) over [0, n), cut into at most `threads` ranges whose bounds are multiples of
/// `grain`. With one thread no parallel region is opened.
template <class Body>
void parallel_ranges(int threads, std::int64_t n, std::int64_t grain, const Body& body) {
  if (n <= 0) return;
  if (threads <= 1 || n <= grain) {
    body(std::int64_t{0}, n);
    return;
  }
  const std::int64_t grains = (n + grain - 1) / grain;
  const std::int64_t length = (grains + threads - 1) / threads * grain;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t begin = 0; begin < n; begin += length) body(begin, std::min(begin + length, n));
}

}  // namespace slimpipe::device::cpu
