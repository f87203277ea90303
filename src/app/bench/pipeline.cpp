#include <chrono>
#include <cstdio>
#include <memory>

#include "slimpipe/runtime/executor.h"

#include "app/bench/benchmarks.h"
#include "app/bench/measure.h"
#include "app/bench/synthetic.h"

namespace slimpipe::app::bench {
namespace {

constexpr int kMicrobatches = 2;
constexpr int kSlices = 8;

config::RunConfig pipeline_config(const BenchOptions& options, schedule::Kind kind, int pipeline,
                                  int slices) {
  config::RunConfig config = bench_config(options);
  config.training.microbatches = kMicrobatches;
  config.schedule.kind = kind;
  config.schedule.slices = slices;
  config.parallel.pipeline = pipeline;
  return config;
}

/// The three layouts step by step in turn, so that a change of the machine's speed meets all of them.
void bench_schedules(const BenchOptions& options) {
  using schedule::Kind;
  const config::RunConfig one = pipeline_config(options, Kind::kGpipe, 1, 1);
  PinnedSession single(one);
  PinnedSession plain(pipeline_config(options, Kind::kOneFOneB, 2, 1));
  PinnedSession sliced(pipeline_config(options, Kind::kSlimPipe, 2, kSlices));
  const train::Batch batch = random_batch(one);
  for (PinnedSession* session : {&single, &plain, &sliced}) (void)session->time_step(batch);
  std::vector<double> single_s, plain_s, sliced_s, over_plain, over_single;
  for (int i = 0; i < options.repeats; ++i) {
    single_s.push_back(single.time_step(batch).wall);
    plain_s.push_back(plain.time_step(batch).wall);
    sliced_s.push_back(sliced.time_step(batch).wall);
    over_plain.push_back(plain_s.back() / sliced_s.back());
    over_single.push_back(single_s.back() / sliced_s.back());
  }
  const double tokens = static_cast<double>(kMicrobatches * options.sequence_length);
  Table table({"layout", "ms a step", "tokens/s", "bubble", "peak MiB of a device"});
  const auto row = [&](const char* name, const std::vector<double>& seconds, const PinnedSession& session) {
    const double median = spread_of(seconds).median;
    table.row({name, fmt::format("{:.0f}", median * 1e3), fmt::format("{:.0f}", tokens / median),
               fmt::format("{:.0f} %", session.last().bubble * 100),
               fmt::format("{:.0f}", session.peak_bytes() / (1 << 20))});
  };
  row("one device", single_s, single);
  row("1f1b, 2 devices", plain_s, plain);
  row("slimpipe, 2 devices, 8 slices", sliced_s, sliced);
  table.print();
  const Spread gain = spread_of(over_plain);
  const Spread speedup = spread_of(over_single);
  std::printf("slimpipe over 1f1b: %.2f (%.2f to %.2f); over one device: %.2f (%.2f to %.2f), %d repeats\n",
              gain.median, gain.low, gain.high, speedup.median, speedup.low, speedup.high, options.repeats);
}

/// Steps that only pass the time, so that what remains is the executor's own.
class SpinRunner : public runtime::StepRunner {
 public:
  void begin(const runtime::Program&, const runtime::StepTokens&) override {}
  void run(const runtime::Step&, device::Stream&) override {
    const auto start = Clock::now();
    while (Clock::now() - start < kStep) {
    }
  }
  std::span<std::byte> message(const runtime::Step&, const runtime::Transfer& transfer) override {
    memory_.resize(static_cast<std::size_t>(transfer.bytes));
    return memory_;
  }
  void message_done(const runtime::Step&, const runtime::Transfer&) override {}
  std::vector<double> losses() override { return {}; }
  void check_nothing_left() const override {}
  static constexpr std::chrono::milliseconds kStep{1};

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<std::byte> memory_;
};

void bench_executor(const BenchOptions& options) {
  const schedule::Spec spec{.kind = schedule::Kind::kSlimPipe,
                            .pipeline = 1,
                            .virtual_stages = 1,
                            .microbatches = 2,
                            .slices = kSlices,
                            .warmup_slope = 2};
  runtime::CompileInput input;
  input.layers = 2;
  input.message_bytes = 1;
  input.devices = {0};
  const auto programs = runtime::compile(schedule::build(spec), input);
  std::int64_t steps = 0;
  for (const runtime::Step& step : programs[0].steps)
    steps += step.kind == runtime::StepKind::kCompute ? 1 : 0;
  FirstError first_error;
  const auto transport = comm::make_in_process_transport(1, first_error);
  SpinRunner runner;
  device::Stream stream;
  runtime::Progress progress(0);
  runtime::Executor executor(transport->endpoint(0), runner, stream, progress, StopToken(first_error));
  std::vector<double> overheads;
  for (int i = 0; i < options.repeats; ++i) {
    const double ideal_ms = static_cast<double>(steps);
    overheads.push_back(executor.run(programs[0]).wall_ms / ideal_ms - 1);
  }
  std::printf("executor overhead at steps of 1 ms: %.3f %% (median of %d runs of %lld steps)\n",
              spread_of(overheads).median * 100, options.repeats, static_cast<long long>(steps));
}

}  // namespace

void bench_pipeline(const BenchOptions& options) {
  if (allowed_cores() < 2) {
    std::printf("two devices need two cores; this process may use one: no measurement\n");
  } else {
    bench_schedules(options);
  }
  pin_to_core(allowed_cores() - 1);
  bench_executor(options);
}

}  // namespace slimpipe::app::bench
