#include <chrono>
#include <cstdio>

#include "slimpipe/device/peak.h"
#include "slimpipe/model/parameters.h"

#include "app/bench/benchmarks.h"
#include "app/bench/measure.h"
#include "app/bench/synthetic.h"

namespace slimpipe::app::bench {
namespace {

void bench_compute_type(const BenchOptions& options, config::ComputeType dtype) {
  config::RunConfig config = bench_config(options);
  config.training.dtype = dtype;
  const DType compute = train::compute_type(config);
  PinnedSession session(config);
  const train::Batch batch = random_batch(config);
  const auto device = device::make_cpu_backend()->make_device({});

  // The yardsticks are taken between the steps, so that a change of the machine's speed meets both.
  std::vector<double> step_rates;
  std::vector<double> gemm_rates;
  std::vector<double> ratios;
  const double tokens = static_cast<double>(config.training.microbatches * config.data.sequence_length);
  const double flops = tokens * model::flops_per_token(config.model, config.data.sequence_length, false);
  (void)session.seconds_of_step(batch);
  for (int i = 0; i < options.repeats; ++i) {
    const double gemm = gemm_rate(*device, config.model, config.data.sequence_length, compute, 1, false);
    const double rate = flops / session.seconds_of_step(batch);
    step_rates.push_back(rate);
    gemm_rates.push_back(gemm);
    ratios.push_back(rate / gemm);
  }
  const Spread ratio_spread = spread_of(ratios);
  std::printf(
      "%s step, %lld layers, hidden %lld, sequence %lld, head size %lld: %s GF/s of model FLOPs, %.0f "
      "tokens/s; "
      "matrix products alone %s GF/s; ratio %.2f (%.2f to %.2f in %d repeats)\n",
      std::string(name_of(compute)).c_str(), static_cast<long long>(options.layers),
      static_cast<long long>(options.hidden), static_cast<long long>(options.sequence_length),
      static_cast<long long>(options.head_size), gflops(spread_of(step_rates).median).c_str(),
      spread_of(step_rates).median / flops * tokens, gflops(spread_of(gemm_rates).median).c_str(),
      ratio_spread.median, ratio_spread.low, ratio_spread.high, options.repeats);
  std::printf("peak tensor memory %.1f MiB\n", session.peak_bytes() / (1 << 20));
}

}  // namespace

void bench_step(const BenchOptions& options) {
  pin_to_core(allowed_cores() - 1);
  for (const auto dtype : {config::ComputeType::kFp32, config::ComputeType::kBf16})
    bench_compute_type(options, dtype);
}

}  // namespace slimpipe::app::bench
