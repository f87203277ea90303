#pragma once
// A device that computes with the reference operators.

#include <cstring>

#include "slimpipe/device/backend.h"

#include "support/reference_operators.h"

namespace slimpipe::test {

class ReferenceDevice final : public device::Device {
 public:
  explicit ReferenceDevice(int index = 0, std::int64_t memory_limit = 0)
      : index_(index),
        arena_(
            {.owner = fmt::format("reference device {}", index), .limit = memory_limit, .plan_only = false}) {
  }

  [[nodiscard]] int index() const override { return index_; }
  device::Arena& arena() override { return arena_; }
  device::Stream& stream() override { return stream_; }
  device::Operators& operators() override { return operators_; }
  void upload(const void* source, Tensor destination) override {
    SLIMPIPE_CHECK(destination.contiguous(), "upload to the strided tensor {}", destination.describe());
    if (destination.bytes() > 0)
      std::memcpy(destination.data(), source, static_cast<std::size_t>(destination.bytes()));
  }
  void download(Tensor source, void* destination) override {
    SLIMPIPE_CHECK(source.contiguous(), "download of the strided tensor {}", source.describe());
    if (source.bytes() > 0) std::memcpy(destination, source.data(), static_cast<std::size_t>(source.bytes()));
  }

 private:
  class InOrderStream final : public device::Stream {};
  int index_;
  device::Arena arena_;
  InOrderStream stream_;
  ReferenceOperators operators_;
};

class ReferenceBackend final : public device::Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "reference"; }
  [[nodiscard]] int device_count() const override { return 1; }
  std::unique_ptr<device::Device> make_device(const device::DeviceOptions& options) override {
    SLIMPIPE_CHECK(!options.plan_only, "the reference device has no plan-only mode");
    return std::make_unique<ReferenceDevice>(options.index, options.memory_limit);
  }
};

}  // namespace slimpipe::test
