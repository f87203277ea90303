#pragma once
// Timing that can be trusted on a shared machine: pinned, repeated, medians, ratios within one run.

#include <fmt/core.h>
#include <functional>
#include <string>
#include <vector>

#include "slimpipe/device/backend.h"

namespace slimpipe::app::bench {

struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
[[nodiscard]] Spread spread_of(std::vector<double> values);

/// Processor time of the calling thread: what a core spent on it, whatever else the machine is doing. Equal
/// to the time that passes where the thread has its core to itself.
[[nodiscard]] double thread_seconds();
/// Thread seconds of `body`, once unmeasured and then `repeats` times.
[[nodiscard]] Spread time_seconds(int repeats, const std::function<void()>& body);

/// Binds the calling thread to one of the process's allowed cores (modulo their number).
void pin_to_core(int index);
[[nodiscard]] int allowed_cores();

/// A device tensor of random values in [-scale, scale], in an arena buffer of its own.
class RandomTensor {
 public:
  RandomTensor(device::Device& device, DType dtype, std::initializer_list<std::int64_t> dims,
               float scale = 1.0F);
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  device::Buffer buffer_;
  Tensor tensor_;
};

/// A table with right-aligned columns on standard output.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void row(std::vector<std::string> cells);
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

[[nodiscard]] inline std::string gflops(double flops_per_second) {
  return fmt::format("{:.1f}", flops_per_second / 1e9);
}
[[nodiscard]] inline std::string ratio(double value) {
  return fmt::format("{:.2f}", value);
}

}  // namespace slimpipe::app::bench
