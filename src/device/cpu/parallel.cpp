#include "device/cpu/parallel.h"

#include <atomic>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "slimpipe/core/check.h"

namespace slimpipe::device::cpu {

void start_threads(int threads) {
  if (threads <= 1) return;
  // As many as OpenMP needs, all alive at once, with the stack size it takes by default: the system's.
  std::latch counted(1);
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  std::error_code failure;
  try {
    while (std::ssize(others) < threads - 1) others.emplace_back([&counted] { counted.wait(); });
  } catch (const std::system_error& error) {
    failure = error.code();
  }
  const std::size_t started = others.size();
  counted.count_down();
  for (std::thread& thread : others) thread.join();
  if (failure) {
    throw_error(
        "device.threads is {}, and after {} the system starts no more: {}; lower device.threads, or "
        "raise what the process may use (ulimit -u, ulimit -v)",
        threads, started + 1, failure.message());
  }
  // OpenMP keeps the threads of a thread's last region, so these stay. Without an effect the region would go.
  std::atomic<int> running = 0;
#pragma omp parallel num_threads(threads)
  running.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace slimpipe::device::cpu
