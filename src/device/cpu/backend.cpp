#include "slimpipe/device/backend.h"

#include <cstring>
#include <mutex>
#include <sched.h>
#include <utility>

#include "device/cpu/operators.h"
#include "device/cpu/parallel.h"
#include "device/planning_operators.h"

namespace slimpipe::device {

namespace {

/// Operators execute within their call: there is never anything to wait for.
class CpuStream final : public Stream {};

class CpuDevice final : public Device {
 public:
  CpuDevice(const DeviceOptions& options, cpu::BFloat16Products products)
      : index_(options.index),
        arena_({.owner = fmt::format("device {}", options.index),
                .limit = options.memory_limit,
                .plan_only = options.plan_only}),
        operators_(options.threads, products) {}

  [[nodiscard]] int index() const override { return index_; }
  Arena& arena() override { return arena_; }
  Stream& stream() override { return stream_; }
  Operators& operators() override {
    return arena_.plan_only() ? static_cast<Operators&>(planning_) : operators_;
  }

  void upload(const void* source, Tensor destination) override {
    check_transfer("upload", destination);
    if (destination.size() > 0 && !arena_.plan_only())
      std::memcpy(destination.data(), source, static_cast<std::size_t>(destination.bytes()));
  }

  void download(Tensor source, void* destination) override {
    check_transfer("download", source);
    if (source.size() > 0 && !arena_.plan_only())
      std::memcpy(destination, source.data(), static_cast<std::size_t>(source.bytes()));
  }

 private:
  static void check_transfer(const char* name, const Tensor& tensor) {
    SLIMPIPE_CHECK(tensor.contiguous(), "{}: {} has strides, expected contiguous", name, tensor.describe());
  }

  int index_;
  Arena arena_;
  CpuStream stream_;
  cpu::CpuOperators operators_;
  PlanningOperators planning_{operators_};
};

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }

  [[nodiscard]] int device_count() const override {
    cpu_set_t cores;  // those this process may run on, not those of the machine
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
    return CPU_COUNT(&cores);
  }

  std::unique_ptr<Device> make_device(const DeviceOptions& options) override {
    SLIMPIPE_CHECK(options.threads >= 1, "device {}: {} threads, expected 1 or more", options.index,
                   options.threads);
    const std::scoped_lock one_by_one(
        starting_);  // so that each finds the threads of those before it running
    cpu::start_threads(options.threads);
    return std::make_unique<CpuDevice>(options, products_);
  }

 private:
  /// Asked for once, before there are devices on threads of their own: oneDNN sets itself up at its first
  /// use.
  cpu::BFloat16Products products_ = cpu::best_bfloat16_products();
  std::mutex starting_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace slimpipe::device
