#include "slimpipe/comm/topology.h"

#include <limits>
#include <numeric>

#include "slimpipe/core/check.h"
#include "slimpipe/core/counted.h"

namespace slimpipe::comm {
namespace {

std::string describe(const ParallelSizes& sizes) {
  return fmt::format("tensor {} x context {} x data {} x pipeline {}", sizes.tensor, sizes.context,
                     sizes.data, sizes.pipeline);
}

void check_sizes(const ParallelSizes& sizes) {
  std::int64_t devices = 1;
  for (const int size : {sizes.tensor, sizes.context, sizes.data, sizes.pipeline}) {
    if (size < 1) throw_input_error("every parallel size must be at least 1, found {}", describe(sizes));
    devices *= size;  // both factors fit in 31 bits, so the product fits in 62
    if (devices > std::numeric_limits<int>::max()) {
      throw_input_error("{} is more devices than can be numbered ({}): use smaller parallel sizes",
                        describe(sizes), std::numeric_limits<int>::max());
    }
  }
}

bool in_range(int index, int size) {
  return index >= 0 && index < size;
}

}  // namespace

Topology::Topology(ParallelSizes sizes, int processes, int this_process)
    : sizes_(sizes), processes_(processes), this_process_(this_process) {
  check_sizes(sizes);
  SLIMPIPE_CHECK(processes >= 1 && in_range(this_process, processes), "process {} of {}", this_process,
                 processes);
  if (devices() % processes != 0) {
    throw_input_error(
        "{} ({}) cannot be shared equally among {} processes: start a number of processes that "
        "divides {}, or change the parallel sizes",
        counted(devices(), "device"), describe(sizes), processes, devices());
  }
}

std::vector<int> Topology::local_devices() const {
  std::vector<int> local(static_cast<std::size_t>(devices_per_process()));
  std::iota(local.begin(), local.end(), this_process_ * devices_per_process());
  return local;
}

Coordinates Topology::coordinates(int device) const {
  SLIMPIPE_CHECK(in_range(device, devices()), "device {} of {}", device, devices());
  Coordinates at;
  at.tensor = device % sizes_.tensor;
  device /= sizes_.tensor;
  at.context = device % sizes_.context;
  device /= sizes_.context;
  at.data = device % sizes_.data;
  at.pipeline = device / sizes_.data;
  return at;
}

int Topology::device_at(const Coordinates& at) const {
  SLIMPIPE_CHECK(in_range(at.tensor, sizes_.tensor) && in_range(at.context, sizes_.context) &&
                     in_range(at.data, sizes_.data) && in_range(at.pipeline, sizes_.pipeline),
                 "tensor {}, context {}, data {}, pipeline {} in {}", at.tensor, at.context, at.data,
                 at.pipeline, describe(sizes_));
  return ((at.pipeline * sizes_.data + at.data) * sizes_.context + at.context) * sizes_.tensor + at.tensor;
}

std::vector<int> Topology::pipeline_group(int device) const {
  Coordinates at = coordinates(device);
  std::vector<int> group;
  for (at.pipeline = 0; at.pipeline < sizes_.pipeline; ++at.pipeline) group.push_back(device_at(at));
  return group;
}

}  // namespace slimpipe::comm
