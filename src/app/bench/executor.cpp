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
  input.stage_layers = {1, 1};
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

/// Compute steps on the longest path through the programs: what their run takes where nothing else takes
/// time. Two devices have one kind of message in each direction, and messages arrive in the order they were
/// sent.
int longest_path(const std::vector<runtime::Program>& programs) {
  std::array<std::deque<int>, kDevices>
      sent;  // by sender: how much was computed before each message on its way
  std::array<std::size_t, kDevices> next{};
  std::array<int, kDevices> computed{};
  const auto advance = [&](int device) {
    const std::vector<runtime::Step>& steps = programs[device].steps;
    for (std::size_t& i = next[device]; i < steps.size(); ++i) {
      if (steps[i].kind == runtime::StepKind::kCompute) ++computed[device];
      if (steps[i].kind == runtime::StepKind::kPostSend) sent[device].push_back(computed[device]);
      if (steps[i].kind != runtime::StepKind::kWaitReceive) continue;
      std::deque<int>& arriving = sent[1 - device];
      if (arriving.empty()) return;
      computed[device] = std::max(computed[device], arriving.front());
      arriving.pop_front();
    }
  };
  while (next[0] < programs[0].steps.size() || next[1] < programs[1].steps.size()) {
    advance(0);
    advance(1);
  }
  return *std::ranges::max_element(computed);
}

struct Overheads {
  double own = 0;    ///< share of the busier device's time that is neither compute nor waiting for messages
  double total = 0;  ///< by which the run takes longer than its longest path: waking and moving messages too
};

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

  Overheads run() {
    std::array<runtime::ExecutionTimes, kDevices> times;
    threads_.each([&](int d) {
      device::Stream stream;
      runtime::Executor executor(transport_->endpoint(d), runners_[d], stream, progress_[d],
                                 StopToken(first_error_));
      times[d] = executor.run(programs_[d]);
    });
    const auto& busiest = *std::ranges::max_element(times, {}, &runtime::ExecutionTimes::compute_ms);
    const double wall_ms = std::ranges::max_element(times, {}, &runtime::ExecutionTimes::wall_ms)->wall_ms;
    const double ideal_ms =
        longest_path(programs_) * std::chrono::duration<double, std::milli>(SpinRunner::kStep).count();
    return {.own = 1 - (busiest.compute_ms + busiest.wait_ms) / busiest.wall_ms,
            .total = wall_ms / ideal_ms - 1};
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
  (void)devices.run();
  std::vector<double> own;
  std::vector<double> total;
  for (int i = 0; i < options.repeats; ++i) {
    const Overheads overheads = devices.run();
    own.push_back(overheads.own);
    total.push_back(overheads.total);
  }
  const Spread spread = spread_of(own);
  const Spread whole = spread_of(total);
  const runtime::Program& program = devices.program();
  fmt::print(
      "executor: {:.3f} % ({:.3f} to {:.3f} % in {} runs) of the busier device's time is neither compute nor "
      "waiting\nfor messages; 2 devices in one process, each with {} steps of {} ms and {} messages of {} "
      "KiB, "
      "copies included; the run takes {:.3f} % ({:.3f} to {:.3f} %) longer than the steps on its longest "
      "path\n",
      spread.median * 100, spread.low * 100, spread.high * 100, options.repeats,
      std::ranges::count(program.steps, runtime::StepKind::kCompute, &runtime::Step::kind),
      SpinRunner::kStep.count(), program.transfers.size(), kMessageBytes >> 10, whole.median * 100,
      whole.low * 100, whole.high * 100);
}

}  // namespace slimpipe::app::bench
