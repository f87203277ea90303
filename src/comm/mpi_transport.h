#pragma once
// make_mpi_transport with a knob for tests.

#include <climits>
#include <memory>

#include "slimpipe/comm/transport.h"

namespace slimpipe::comm {

struct MpiTransportOptions {
  bool spare_core = false;        ///< as in make_mpi_transport of transport.h
  int max_plain_bytes = INT_MAX;  ///< see MpiRequests
};
[[nodiscard]] std::unique_ptr<Transport> make_mpi_transport(const Topology& topology, FirstError& first_error,
                                                            const MpiTransportOptions& options);

}  // namespace slimpipe::comm
