#include <cstdio>

#include "app/bench/benchmarks.h"
#include "app/bench/layouts.h"

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

/// Times of the sends of all devices in a step.
struct Sends {
  double ms = 0;
  double hidden_share = 0;
};
Sends sends_of(const train::StepResult& result) {
  Sends sends;
  double hidden_ms = 0;
  for (const train::DeviceReport& device : result.devices) {
    sends.ms += device.times.send_ms;
    hidden_ms += device.times.send_hidden_ms;
  }
  sends.hidden_share = sends.ms > 0 ? hidden_ms / sends.ms : 0;
  return sends;
}

void bench_schedules(const BenchOptions& options) {
  using schedule::Kind;
  enum : int { kSingle, kPlain, kSliced };
  const LayoutComparison layouts(
      {{"one device", pipeline_config(options, Kind::kGpipe, 1, 1)},
       {"1f1b, 2 devices", pipeline_config(options, Kind::kOneFOneB, 2, 1)},
       {"slimpipe, 2 devices, 8 slices", pipeline_config(options, Kind::kSlimPipe, 2, kSlices)}},
      options.repeats);
  layouts.print();
  const Spread gain = layouts.gain(kSliced, kPlain);
  const Spread speedup = layouts.gain(kSliced, kSingle);
  std::printf("slimpipe over 1f1b: %.2f (%.2f to %.2f); over one device: %.2f (%.2f to %.2f), %d repeats\n",
              gain.median, gain.low, gain.high, speedup.median, speedup.low, speedup.high, options.repeats);
  std::vector<double> sends_ms, hidden;
  for (const train::StepResult& result : layouts.results(kSliced)) {
    const Sends sends = sends_of(result);
    sends_ms.push_back(sends.ms);
    hidden.push_back(sends.hidden_share);
  }
  const Spread share = spread_of(hidden);
  std::printf(
      "messages of slimpipe: %.1f ms a step from post to completion, summed over the sends of both devices "
      "and with the wait for the receiver's post; %.0f %% (%.0f to %.0f %%) of it while the sender "
      "computed\n",
      spread_of(sends_ms).median, share.median * 100, share.low * 100, share.high * 100);
}

}  // namespace

void bench_pipeline(const BenchOptions& options) {
  expect_two_devices(options);
  bench_schedules(options);
  bench_executor(options);
}

}  // namespace slimpipe::app::bench
