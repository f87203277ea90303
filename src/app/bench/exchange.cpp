#include "slimpipe/schedule/exchange.h"

#include <cstdio>

#include "slimpipe/core/check.h"

#include "app/bench/benchmarks.h"
#include "app/bench/layouts.h"

namespace slimpipe::app::bench {
namespace {

constexpr int kMicrobatches = 2;

config::RunConfig layout_config(const BenchOptions& options, schedule::Kind kind, schedule::Exchange exchange,
                                bool early) {
  config::RunConfig config = bench_config(options);
  config.training.microbatches = kMicrobatches;
  config.parallel.pipeline = 2;
  config.schedule.kind = kind;
  config.schedule.slices = kind == schedule::Kind::kOneFOneB ? 1 : options.slices;
  config.schedule.exchange = exchange;
  config.schedule.early_exchange = early;
  return config;
}

/// What the attention exchange cost in a step, over both devices.
struct ExchangeCost {
  double mebibytes = 0;
  double wait_ms = 0;
};
ExchangeCost cost_of(const train::StepResult& result) {
  ExchangeCost cost;
  for (const train::DeviceReport& device : result.devices) {
    cost.mebibytes += static_cast<double>(device.times.exchange_bytes) / (1 << 20);
    cost.wait_ms += device.times.exchange_wait_ms;
  }
  return cost;
}
ExchangeCost median_cost(const std::vector<train::StepResult>& results) {
  std::vector<double> mebibytes, wait_ms;
  for (const train::StepResult& result : results) {
    const ExchangeCost cost = cost_of(result);
    mebibytes.push_back(cost.mebibytes);
    wait_ms.push_back(cost.wait_ms);
  }
  return {spread_of(mebibytes).median, spread_of(wait_ms).median};
}

/// Share of attention in the FLOPs of a layer over a causal sequence, forward and backward together: linears
/// cost 3 times their forward, attention 3.5 times.
double attention_share(const config::RunConfig& config) {
  const config::ModelConfig& model = config.model;
  const auto size = [](std::int64_t value) { return static_cast<double>(value); };
  const double linear =
      2 * size(model.hidden) *
      (2 * size(model.heads + model.kv_heads) * size(model.head_size) + 3 * size(model.ffn));
  const double attended = size(config.data.sequence_length + 1) / 2;
  const double attention = 4 * attended * size(model.heads) * size(model.head_size);
  return 3.5 * attention / (3.5 * attention + 3 * linear);
}

}  // namespace

void bench_exchange(const BenchOptions& options) {
  using schedule::Exchange;
  using schedule::Kind;
  expect_two_devices(options);
  if (options.slices < 2) throw_input_error("--slices {}: expected at least 2 to exchange", options.slices);
  enum : int { kPlain, kNone, kLate, kEarly };
  const LayoutComparison layouts(
      {{"1f1b", layout_config(options, Kind::kOneFOneB, Exchange::kNone, true)},
       {"slimpipe", layout_config(options, Kind::kSlimPipe, Exchange::kNone, true)},
       {"slimpipe, balanced, late", layout_config(options, Kind::kSlimPipe, Exchange::kBalanced, false)},
       {"slimpipe, balanced", layout_config(options, Kind::kSlimPipe, Exchange::kBalanced, true)}},
      options.repeats);
  std::printf("two devices, two sequences, %d slices; attention is %.0f %% of a layer's FLOPs\n",
              options.slices,
              attention_share(layout_config(options, Kind::kSlimPipe, Exchange::kNone, true)) * 100);
  layouts.print();
  const auto print_gain = [&](const char* name, int slower) {
    const Spread gain = layouts.gain(kEarly, slower);
    std::printf("slimpipe with balanced exchange over %s: %.2f (%.2f to %.2f)\n", name, gain.median, gain.low,
                gain.high);
  };
  print_gain("1f1b", kPlain);
  print_gain("slimpipe without exchange", kNone);
  print_gain("a late exchange", kLate);
  for (const auto& [name, index] : {std::pair{"late", int{kLate}}, {"early", int{kEarly}}}) {
    const ExchangeCost cost = median_cost(layouts.results(index));
    std::printf("exchange, %s: %.1f MiB a step, %.1f ms waited, summed over both devices\n", name,
                cost.mebibytes, cost.wait_ms);
  }
}

}  // namespace slimpipe::app::bench
