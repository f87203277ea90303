#pragma once
// make_mpi_transport with a knob for tests.

#include <memory>

#include "slimpipe/comm/transport.h"

namespace slimpipe::comm {

/// `max_plain_bytes`: see MpiRequests.
[[nodiscard]] std::unique_ptr<Transport> make_mpi_transport(const Topology& topology, FirstError& first_error,
                                                            const MpiTransportOptions& options,
                                                            int max_plain_bytes);

}  // namespace slimpipe::comm
