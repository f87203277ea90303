#pragma once
// Devices in the threads of this process.

#include <numeric>

#include "support/device_harness.h"

namespace slimpipe::test {

class InProcessHarness final : public DeviceHarness {
 public:
  explicit InProcessHarness(int devices) : devices_(devices) {}
  [[nodiscard]] int devices() const override { return devices_; }
  [[nodiscard]] std::vector<int> local_devices() const override {
    std::vector<int> all(static_cast<std::size_t>(devices_));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 protected:
  std::unique_ptr<comm::Transport> make_transport(FirstError& first_error) override {
    return comm::make_in_process_transport(devices_, first_error);
  }

 private:
  int devices_;
};

}  // namespace slimpipe::test
