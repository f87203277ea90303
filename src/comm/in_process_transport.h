#pragma once
// The in-process transport for a range of devices: on its own (make_in_process_transport) or for the
// devices that share one process of an MPI run.

#include <memory>

#include "slimpipe/comm/transport.h"

namespace slimpipe::comm {

/// Endpoints of the devices [first_device, first_device + devices).
[[nodiscard]] std::unique_ptr<Transport> make_in_process_transport(int first_device, int devices,
                                                                   FirstError& first_error);

}  // namespace slimpipe::comm
