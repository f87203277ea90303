#pragma once
// A CPU device for tests of operators, and workspaces from its arena filled with NaN.

#include <cstring>
#include <memory>

#include "slimpipe/device/backend.h"

namespace slimpipe::testing {

class CpuDevice {
 public:
  explicit CpuDevice(int threads = 1)
      : device_(device::make_cpu_backend()->make_device({.index = 0, .threads = threads})) {}

  device::Operators& operators() { return device_->operators(); }
  device::Stream& stream() { return device_->stream(); }

  /// Valid until the next call; its old contents are NaN, so a read before a write shows.
  Tensor workspace(std::int64_t bytes) {
    buffer_.reset();
    buffer_ = device::Buffer(device_->arena(), device::Scope::kWorkspace, bytes, "test workspace");
    std::memset(buffer_.data(), 0xFF, static_cast<std::size_t>(bytes));
    return Tensor(buffer_.data(), DType::kF32, {bytes / size_of(DType::kF32)});
  }

  void gemm(const device::Gemm& gemm) {
    operators().gemm(stream(), gemm, workspace(operators().gemm_workspace_bytes(gemm)));
  }

 private:
  std::unique_ptr<device::Device> device_;
  device::Buffer buffer_;  // freed before its arena
};

}  // namespace slimpipe::testing
