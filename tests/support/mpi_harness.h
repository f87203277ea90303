#pragma once
// Devices shared out over the processes that mpirun started.

#include <climits>

#include "slimpipe/comm/mpi.h"

#include "comm/mpi_transport.h"
#include "support/device_harness.h"

namespace slimpipe::test {

class MpiHarness final : public DeviceHarness {
 public:
  MpiHarness(comm::MpiSession& session, int devices, bool spare_core, int max_plain_bytes = INT_MAX)
      : session_(session),
        topology_({.pipeline = devices}, session.environment().size, session.environment().rank),
        options_{.spare_core = spare_core, .patience = {}},
        max_plain_bytes_(max_plain_bytes) {}
  [[nodiscard]] int devices() const override { return topology_.devices(); }
  [[nodiscard]] std::vector<int> local_devices() const override { return topology_.local_devices(); }

 protected:
  std::unique_ptr<comm::Transport> make_transport(FirstError& first_error) override {
    return make_mpi_transport(topology_, first_error, options_, max_plain_bytes_);
  }
  void synchronise() override { session_.barrier(); }

 private:
  comm::MpiSession& session_;
  comm::Topology topology_;
  comm::MpiTransportOptions options_;
  int max_plain_bytes_;
};

}  // namespace slimpipe::test
