#include "app/bench/measure.h"

#include <algorithm>
#include <cstdio>
#include <sched.h>
#include <time.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/random.h"

namespace slimpipe::app::bench {

Spread spread_of(std::vector<double> values) {
  SLIMPIPE_CHECK(!values.empty(), "no measurements");
  std::ranges::sort(values);
  return {values[values.size() / 2], values.front(), values.back()};
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Spread time_seconds(int repeats, const std::function<void()>& body) {
  body();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const double start = thread_seconds();
    body();
    seconds.push_back(thread_seconds() - start);
  }
  return spread_of(std::move(seconds));
}

namespace {

/// The cores this process may use, as they were at the first call: pinning a thread must not shrink the
/// list that the next one chooses from.
const std::vector<int>& cores() {
  static const std::vector<int> list = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> found;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) found.push_back(core);
      }
    }
    return found;
  }();
  return list;
}

}  // namespace

int allowed_cores() {
  return std::max(1, static_cast<int>(cores().size()));
}

void pin_to_core(int index) {
  if (cores().empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores()[static_cast<std::size_t>(index) % cores().size()], &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    std::fputs("note: the thread could not be pinned\n", stderr);
}

RandomTensor::RandomTensor(device::Device& device, DType dtype, std::initializer_list<std::int64_t> dims,
                           float scale) {
  std::int64_t size = 1;
  for (const std::int64_t dim : dims) size *= dim;
  buffer_ = device::Buffer(device.arena(), device::Scope::kWorkspace, size * size_of(dtype), "random values");
  tensor_ = Tensor(buffer_.data(), dtype, dims);
  dispatch_compute(dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<T> host(size);
    const RandomStream stream{RandomStream::Use::kTest, static_cast<std::uint32_t>(size)};
    for (std::int64_t i = 0; i < size; ++i) {
      const double uniform = random_uniform(1, stream, static_cast<std::uint64_t>(i));
      host[i] = T((2 * static_cast<float>(uniform) - 1) * scale);
    }
    device.upload(host.data(), tensor_);
  });
}

Table::Table(std::vector<std::string> headings) {
  rows_.push_back(std::move(headings));
}

void Table::row(std::vector<std::string> cells) {
  rows_.push_back(std::move(cells));
}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const auto& cells : rows_) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  for (const auto& cells : rows_) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line +=
          i == 0 ? fmt::format("{:<{}}", cells[i], widths[i]) : fmt::format("  {:>{}}", cells[i], widths[i]);
    }
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace slimpipe::app::bench
