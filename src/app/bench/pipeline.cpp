#include <cstdio>

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

/// The three layouts step by step in turn, so that a change of the machine's speed meets all of them.
void bench_schedules(const BenchOptions& options) {
  using schedule::Kind;
  const config::RunConfig one = pipeline_config(options, Kind::kGpipe, 1, 1);
  PinnedSession single(one);
  PinnedSession plain(pipeline_config(options, Kind::kOneFOneB, 2, 1));
  PinnedSession sliced(pipeline_config(options, Kind::kSlimPipe, 2, kSlices));
  const train::Batch batch = random_batch(one);
  for (PinnedSession* session : {&single, &plain, &sliced}) (void)session->time_step(batch);
  std::vector<double> single_s, plain_s, sliced_s, over_plain, over_single, sends_ms, hidden;
  for (int i = 0; i < options.repeats; ++i) {
    single_s.push_back(single.time_step(batch).wall);
    plain_s.push_back(plain.time_step(batch).wall);
    sliced_s.push_back(sliced.time_step(batch).wall);
    const Sends sends = sends_of(sliced.last());
    sends_ms.push_back(sends.ms);
    hidden.push_back(sends.hidden_share);
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
  const Spread share = spread_of(hidden);
  std::printf(
      "messages of slimpipe: %.1f ms a step from post to completion, summed over the sends of both devices "
      "and "
      "with the wait for the receiver's post; %.0f %% (%.0f to %.0f %%) of it while the sender computed\n",
      spread_of(sends_ms).median, share.median * 100, share.low * 100, share.high * 100);
}

}  // namespace

void bench_pipeline(const BenchOptions& options) {
  if (options.layers % 2 != 0) {
    throw_input_error("--layers {}: expected a multiple of 2, so that two devices can share them",
                      options.layers);
  }
  if (allowed_cores() < 2) throw_error("two devices need two cores, and this process may use one");
  bench_schedules(options);
  bench_executor(options);
}

}  // namespace slimpipe::app::bench
