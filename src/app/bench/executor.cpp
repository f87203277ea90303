#include "slimpipe/runtime/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <fmt/core.h>
#include <map>

#include "slimpipe/runtime/device_threads.h"

#include "app/bench/benchmarks.h"
#include "app/bench/measure.h"

namespace slimpipe::app::bench {
namespace {

constexpr int kDevices = 2;
constexpr int kMicrobatches = 2;
constexpr int kSlices = 8;
/// What goes with compute steps of about 1 ms: 16 tokens of a hidden size of 1024 in fp32, whose products
/// take a core with 100 GFLOP/s that long.
constexpr std::int64_t kMessageBytes = 64 << 10;

/// Steps that only pass the time, so that what remains is the executor's own.
class SpinRunner final : public runtime::StepRunner {
 public:
  static constexpr std::chrono::milliseconds kStep{1};

  void begin(const runtime::Program& program, const runtime::StepTokens&) override {
    for (const runtime::Transfer& transfer : program.transfers) {
      memory_[&transfer].resize(static_cast<std::size_t>(transfer.bytes));
    }
  }
  void run(const runtime::Step&, device::Stream&) override {
    const auto start = Clock::now();
    while (Clock::now() - start < kStep) {
    }
  }
  std::span<std::byte> message(const runtime::Step&, const runtime::Transfer& transfer) override {
    return memory_.at(&transfer);
  }
  void message_done(const runtime::Step&, const runtime::Transfer&) override {}
  std::vector<double> losses() override { return {}; }
  void check_nothing_left() const override {}

 private:
  using Clock = std::chrono::steady_clock;
  std::map<const runtime::Transfer*, std::vector<std::byte>> memory_;
};

std::vector<runtime::Program> spin_programs() {
  runtime::CompileInput input;
  input.layers = 2;
  input.message_bytes = kMessageBytes;
  input.devices = {0, 1};
  return runtime::compile(schedule::build({.kind = schedule::Kind::kSlimPipe,
                                           .pipeline = kDevices,
                                           .virtual_stages = 1,
                                           .microbatches = kMicrobatches,
                                           .slices = kSlices,
                                           .warmup_slope = 2}),
                          input);
}

/// Two devices of this process, a thread and a core each.
class SpinningDevices {
 public:
  SpinningDevices()
      : programs_(spin_programs()),
        transport_(comm::make_in_process_transport(kDevices, first_error_)),
        threads_(kDevices, first_error_, [](int device) { return FailureSite{.device = device}; }) {
    for (int d = 0; d < kDevices; ++d) progress_.emplace_back(d);
    threads_.each([this](int d) {
      pin_to_core(allowed_cores() - 1 - d);
      runners_[d].begin(programs_[d], {});
    });
  }

  /// The share of the busiest device's time that is neither compute nor waiting for messages.
  double overhead() {
    std::array<runtime::ExecutionTimes, kDevices> times;
    threads_.each([&](int d) {
      device::Stream stream;
      runtime::Executor executor(transport_->endpoint(d), runners_[d], stream, progress_[d],
                                 StopToken(first_error_));
      times[d] = executor.run(programs_[d]);
    });
    const auto& busiest = *std::ranges::max_element(times, {}, &runtime::ExecutionTimes::compute_ms);
    return 1 - (busiest.compute_ms + busiest.wait_ms) / busiest.wall_ms;
  }

  [[nodiscard]] const runtime::Program& program() const { return programs_[0]; }

 private:
  std::vector<runtime::Program> programs_;
  FirstError first_error_;
  std::unique_ptr<comm::Transport> transport_;
  std::array<SpinRunner, kDevices> runners_;
  std::deque<runtime::Progress> progress_;
  runtime::DeviceThreads threads_;
};

}  // namespace

void bench_executor(const BenchOptions& options) {
  SpinningDevices devices;
  (void)devices.overhead();
  std::vector<double> overheads;
  for (int i = 0; i < options.repeats; ++i) overheads.push_back(devices.overhead());
  const Spread spread = spread_of(overheads);
  const runtime::Program& program = devices.program();
  fmt::print(
      "executor: {:.3f} % ({:.3f} to {:.3f} % in {} runs) of the busier device's time is neither compute nor "
      "waiting\nfor messages; 2 devices in one process, each with {} steps of {} ms and {} messages of {} "
      "KiB, "
      "copies included\n",
      spread.median * 100, spread.low * 100, spread.high * 100, options.repeats,
      std::ranges::count(program.steps, runtime::StepKind::kCompute, &runtime::Step::kind),
      SpinRunner::kStep.count(), program.transfers.size(), kMessageBytes >> 10);
}

}  // namespace slimpipe::app::bench
