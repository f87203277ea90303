#pragma once
// Every rank number of a run. Nobody else does rank arithmetic.

#include <vector>

namespace slimpipe::comm {

/// Sizes of the parallel dimensions. Devices are numbered with tensor innermost, then context, data,
/// pipeline: index = ((pipeline · data_size + data) · context_size + context) · tensor_size + tensor.
struct ParallelSizes {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int pipeline = 1;
  [[nodiscard]] int devices() const { return tensor * context * data * pipeline; }
};

struct Coordinates {
  int tensor = 0;
  int context = 0;
  int data = 0;
  int pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

class Topology {
 public:
  /// `processes` must divide the number of devices (throws InputError with the numbers otherwise);
  /// process i drives the devices [i·share, (i+1)·share).
  Topology(ParallelSizes sizes, int processes, int this_process);

  [[nodiscard]] const ParallelSizes& sizes() const { return sizes_; }
  [[nodiscard]] int devices() const { return sizes_.devices(); }
  [[nodiscard]] int processes() const { return processes_; }
  [[nodiscard]] int this_process() const { return this_process_; }
  [[nodiscard]] int devices_per_process() const { return devices() / processes_; }
  [[nodiscard]] int process_of(int device) const { return device / devices_per_process(); }
  [[nodiscard]] bool is_local(int device) const { return process_of(device) == this_process_; }
  [[nodiscard]] std::vector<int> local_devices() const;
  [[nodiscard]] Coordinates coordinates(int device) const;
  [[nodiscard]] int device_at(const Coordinates& coordinates) const;
  /// The devices that differ from `device` only in their pipeline rank, in rank order.
  [[nodiscard]] std::vector<int> pipeline_group(int device) const;

 private:
  ParallelSizes sizes_;
  int processes_;
  int this_process_;
};

}  // namespace slimpipe::comm
