#pragma once
// What a backend is: it makes devices; a device is an arena, a stream, operators and copies from and
// to the host.

#include <cstdint>
#include <memory>
#include <string_view>

#include "slimpipe/device/arena.h"
#include "slimpipe/device/operators.h"
#include "slimpipe/device/stream.h"

namespace slimpipe::device {

struct DeviceOptions {
  int index = 0;                  ///< global device index of the run
  int threads = 1;                ///< CPU threads the device's operators may use, 1 or more
  std::int64_t memory_limit = 0;  ///< bytes of live allocations, as ArenaOptions::limit; 0: no limit
  bool plan_only = false;         ///< an arena without memory, for dry runs
};

/// One device, driven by one thread.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual int index() const = 0;
  [[nodiscard]] virtual Arena& arena() = 0;
  [[nodiscard]] virtual Stream& stream() = 0;
  [[nodiscard]] virtual Operators& operators() = 0;
  /// Copies host bytes to a contiguous device tensor, ordered on the stream; `source` may be reused on
  /// return. Throws Error where the tensor has strides. A device that only plans copies nothing.
  virtual void upload(const void* source, Tensor destination) = 0;
  /// Copies a contiguous device tensor to the host; waits for the stream. Throws Error as upload does.
  virtual void download(Tensor source, void* destination) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Devices this machine can drive: for the CPU, its available cores (more may be made, they share).
  [[nodiscard]] virtual int device_count() const = 0;
  /// Throws Error for less than one thread or a negative limit, and where no address range can be reserved
  /// for the device's memory.
  [[nodiscard]] virtual std::unique_ptr<Device> make_device(const DeviceOptions&) = 0;
};

[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend();

}  // namespace slimpipe::device
