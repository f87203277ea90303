#include <cmath>
#include <cstdio>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slimpipe/device/peak.h"
#include "slimpipe/model/parameters.h"

#include "app/bench/benchmarks.h"
#include "app/bench/measure.h"
#include "app/bench/synthetic.h"

namespace slimpipe::app::bench {
namespace {

/// What the steps of one compute type reached; the vectors hold one value a repeat.
struct StepRates {
  config::ModelConfig model;
  double first_loss = 0;
  double flops_per_token = 0;
  std::vector<double> step_flops;         ///< model FLOP/s of whole steps, by processor time
  std::vector<double> tokens_per_second;  ///< by the time that passed
  std::vector<double> gemm_flops;         ///< FLOP/s of their matrix products alone
  std::vector<double> peak_flops;         ///< of multiply-adds; NaN where this processor has none of the type
  std::vector<double> of_gemm;
  std::vector<double> of_peak;
  double peak_bytes = 0;
};

StepRates measure(const BenchOptions& options, DType compute) {
  config::RunConfig config = bench_config(options);
  config.training.dtype = compute == DType::kF32 ? config::ComputeType::kFp32 : config::ComputeType::kBf16;
  PinnedSession session(config);
  const train::Batch batch = random_batch(config);
  const auto device = device::make_cpu_backend()->make_device({});

  // The yardsticks are taken between the steps, so that a change of the machine's speed meets both.
  StepRates rates{.model = config.model};
  rates.flops_per_token = model::flops_per_token(config.model, config.data.sequence_length, false);
  const double tokens = static_cast<double>(config.training.microbatches * config.data.sequence_length);
  (void)session.time_step(batch);
  rates.first_loss = session.last().loss;
  for (int i = 0; i < options.repeats; ++i) {
    const double peak = device::measured_cpu_peak_flops(compute);
    const double gemm = gemm_rate(*device, config.model, config.data.sequence_length, compute, 1, false);
    const PinnedSession::StepSeconds seconds = session.time_step(batch);
    const double rate = tokens * rates.flops_per_token / seconds.thread;
    rates.tokens_per_second.push_back(tokens / seconds.wall);
    rates.step_flops.push_back(rate);
    rates.gemm_flops.push_back(gemm);
    rates.peak_flops.push_back(peak);
    rates.of_gemm.push_back(rate / gemm);
    rates.of_peak.push_back(rate / peak);
  }
  rates.peak_bytes = session.peak_bytes();
  return rates;
}

/// "matrix products alone 109.3 GF/s, ratio 0.94 (0.92 to 0.95)".
std::string against(const char* what, const std::vector<double>& flops, const std::vector<double>& ratios) {
  const Spread spread = spread_of(ratios);
  return fmt::format("{} {} GF/s, ratio {} ({} to {})", what, gflops(spread_of(flops).median),
                     ratio(spread.median), ratio(spread.low), ratio(spread.high));
}

void print_text(const BenchOptions& options, DType compute, const StepRates& rates) {
  const std::string name(name_of(compute));
  fmt::print(
      "{} step, {} layers, hidden {}, sequence {}, head size {}: {} GF/s of model FLOPs, {:.0f} tokens/s "
      "({} repeats)\n  {}\n",
      name, options.layers, options.hidden, options.sequence_length, options.head_size,
      gflops(spread_of(rates.step_flops).median), spread_of(rates.tokens_per_second).median, options.repeats,
      against("matrix products alone", rates.gemm_flops, rates.of_gemm));
  if (std::isfinite(rates.peak_flops.front())) {
    fmt::print("  {}\n", against("peak of multiply-adds", rates.peak_flops, rates.of_peak));
  } else {
    fmt::print("  this processor has no {} dot product, peak n/a\n", name);
  }
  fmt::print("  peak tensor memory {:.1f} MiB\n", rates.peak_bytes / (1 << 20));
}

void print_json(const BenchOptions& options, DType compute, const StepRates& rates) {
  const nlohmann::ordered_json line = {{"benchmark", "step"},
                                       {"dtype", name_of(compute)},
                                       {"layers", rates.model.layers},
                                       {"hidden", rates.model.hidden},
                                       {"heads", rates.model.heads},
                                       {"kv_heads", rates.model.kv_heads},
                                       {"head_size", rates.model.head_size},
                                       {"ffn", rates.model.ffn},
                                       {"vocabulary", rates.model.vocabulary},
                                       {"sequence_length", options.sequence_length},
                                       {"flops_per_token", rates.flops_per_token},
                                       {"first_loss", rates.first_loss},
                                       {"slices", options.slices},
                                       {"recompute", options.recompute},
                                       {"tokens_per_second", rates.tokens_per_second},
                                       {"gemm_flops_per_second", rates.gemm_flops},
                                       {"peak_flops_per_second", rates.peak_flops},
                                       {"peak_bytes", rates.peak_bytes}};
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

void bench_step(const BenchOptions& options) {
  pin_to_core(allowed_cores() - 1);
  const auto print = options.format == "json" ? print_json : print_text;
  for (const DType compute : options.dtypes) print(options, compute, measure(options, compute));
}

}  // namespace slimpipe::app::bench
