#pragma once
// What a layer gets of a device: memory, a stream and operators. No way to wait, to copy from or to the host,
// or to learn which device it is.

#include "slimpipe/device/backend.h"

namespace slimpipe::device {

/// References that outlive the call they are passed to; made anew for each step by whoever runs it.
struct ExecutionContext {
  Arena& arena;
  Stream& stream;  ///< everything the callee issues goes here, in order
  Operators& operators;
};

/// On the device's own stream.
[[nodiscard]] inline ExecutionContext execution_context(Device& device) {
  return {device.arena(), device.stream(), device.operators()};
}

}  // namespace slimpipe::device
