#include "slimpipe/device/backend.h"

#include <cmath>
#include <vector>

#include "slimpipe/device/peak.h"

#include "support/catch.h"

namespace slimpipe::device {

TEST_CASE("the CPU backend makes devices that hold what is uploaded", "[unit]") {
  const auto backend = make_cpu_backend();
  CHECK(backend->name() == "cpu");
  CHECK(backend->device_count() >= 1);
  const auto device = backend->make_device({.index = 7, .threads = 1, .memory_limit = 4096});
  CHECK(device->index() == 7);
  const Buffer buffer(device->arena(), Scope::kInput, 12, "numbers");
  const Tensor tensor(buffer.data(), DType::kI32, {3});
  const std::vector<std::int32_t> sent = {1, -2, 3};
  std::vector<std::int32_t> received(3);
  device->upload(sent.data(), tensor);
  device->download(tensor, received.data());
  CHECK(received == sent);
  CHECK_THROWS_AS(Buffer(device->arena(), Scope::kInput, 8192, "too much"), OutOfMemory);
}

TEST_CASE("a device refuses what it cannot do", "[unit]") {
  const auto backend = make_cpu_backend();
  CHECK_THROWS_AS(backend->make_device({.index = 0, .threads = 0}), Error);
  CHECK_THROWS_AS(backend->make_device({.memory_limit = -1}), Error);

  const auto device = backend->make_device({});
  const Buffer buffer(device->arena(), Scope::kInput, 64, "matrix");
  const Tensor matrix(buffer.data(), DType::kF32, {4, 4});
  std::vector<float> host(16);
  CHECK_THROWS_AS(device->download(matrix.columns(0, 2), host.data()), Error);
  CHECK_THROWS_AS(device->upload(host.data(), matrix.columns(0, 2)), Error);

  const auto plan = backend->make_device({.plan_only = true});
  const Buffer planned(plan->arena(), Scope::kInput, 64, "matrix");
  CHECK_THROWS_AS(plan->upload(host.data(), Tensor(planned.data(), DType::kF32, {4, 4}).columns(0, 2)),
                  Error);
}

TEST_CASE("a device that only plans copies and computes nothing", "[unit]") {
  const auto plan = make_cpu_backend()->make_device({.plan_only = true});
  const Buffer planned(plan->arena(), Scope::kInput, 64, "matrix");
  const Tensor matrix(planned.data(), DType::kF32, {4, 4});
  std::vector<float> host(16, 3.0F);
  plan->upload(host.data(), matrix);
  plan->operators().zero(plan->stream(), matrix);
  plan->operators().add(plan->stream(), matrix, matrix, matrix);
  plan->download(matrix, host.data());
  CHECK(host == std::vector<float>(16, 3.0F));
}

TEST_CASE("a device that only plans answers how much workspace operators need", "[unit]") {
  const auto backend = make_cpu_backend();
  const auto plan = backend->make_device({.plan_only = true});
  const auto device = backend->make_device({});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<std::int64_t> bytes;
    for (Device* which : {plan.get(), device.get()}) {
      const Buffer memory(which->arena(), Scope::kInput, 3 * 64 * 64 * 4, "matrices");
      const Tensor matrix(memory.data(), dtype, {64, 64});
      bytes.push_back(which->operators().gemm_workspace_bytes(
          {.a = matrix, .b = matrix, .c = Tensor(memory.data(), DType::kF32, {64, 64})}));
    }
    CHECK(bytes[0] == bytes[1]);
  }
}

TEST_CASE("the measured peak of a core is a rate, and NaN where it cannot be measured", "[unit]") {
  constexpr double kMostOfACore = 1e14;
  const double fp32 = measured_cpu_peak_flops(DType::kF32);
  CHECK(fp32 > 0);
  CHECK(fp32 < kMostOfACore);
  const double bf16 = measured_cpu_peak_flops(DType::kBF16);  // where the processor has the instruction
  CHECK((std::isnan(bf16) || (bf16 > 0 && bf16 < kMostOfACore)));
  CHECK(std::isnan(measured_cpu_peak_flops(DType::kI32)));
}

}  // namespace slimpipe::device
