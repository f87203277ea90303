#include <cmath>
#include <cstdio>

#include "slimpipe/device/peak.h"

#include "app/bench/benchmarks.h"
#include "app/bench/measure.h"

namespace slimpipe::app::bench {
namespace {

/// One linear of the model: y [T, out] = x [T, in] · Wᵀ.
struct Linear {
  const char* name;
  std::int64_t out;
  std::int64_t in;
};

std::vector<Linear> linears(const config::ModelConfig& model) {
  const std::int64_t heads = model.heads + 2 * model.kv_heads;
  return {{"qkv", heads * model.head_size, model.hidden},
          {"attention output", model.hidden, model.heads * model.head_size},
          {"gate and up", 2 * model.ffn, model.hidden},
          {"down", model.hidden, model.ffn}};
}

}  // namespace

double gemm_seconds(device::Device& device, const device::Gemm& gemm, int repeats) {
  device::Operators& ops = device.operators();
  const std::int64_t bytes = ops.gemm_workspace_bytes(gemm);
  const device::Buffer workspace(device.arena(), device::Scope::kWorkspace, bytes, "product scratch");
  const Tensor scratch(workspace.data(), DType::kF32, {bytes / size_of(DType::kF32)});
  return time_seconds(repeats, [&] { ops.gemm(device.stream(), gemm, scratch); }).median;
}

config::ModelConfig bench_model(const BenchOptions& options) {
  config::ModelConfig model;
  model.layers = options.layers;
  model.hidden = options.hidden;
  model.head_size = options.head_size;
  model.heads = options.hidden / options.head_size;
  model.kv_heads = model.heads;
  model.ffn = (options.hidden * 8 / 3 + 127) / 128 * 128;
  model.vocabulary = options.vocabulary;
  return model;
}

double gemm_rate(device::Device& device, const config::ModelConfig& model, std::int64_t tokens, DType compute,
                 int repeats, bool print) {
  Table table({"product", "T x out x in", "forward GF/s", "d input GF/s", "d weight GF/s"});
  double flops_in_all = 0;
  double seconds_in_all = 0;
  for (const Linear& linear : linears(model)) {
    const RandomTensor x(device, compute, {tokens, linear.in});
    const RandomTensor weight(device, compute, {linear.out, linear.in});
    const RandomTensor y(device, compute, {tokens, linear.out});
    const RandomTensor d_weight(device, DType::kF32, {linear.out, linear.in});
    const double flops = 2.0 * static_cast<double>(tokens * linear.out * linear.in);
    const double forward = gemm_seconds(
        device, {.a = x.tensor(), .b = weight.tensor(), .c = y.tensor(), .transpose_b = true}, repeats);
    const double d_input =
        gemm_seconds(device, {.a = y.tensor(), .b = weight.tensor(), .c = x.tensor()}, repeats);
    const double d_w = gemm_seconds(
        device,
        {.a = y.tensor(), .b = x.tensor(), .c = d_weight.tensor(), .transpose_a = true, .accumulate = true},
        repeats);
    table.row({linear.name, fmt::format("{} x {} x {}", tokens, linear.out, linear.in),
               gflops(flops / forward), gflops(flops / d_input), gflops(flops / d_w)});
    flops_in_all += 3 * flops;
    seconds_in_all += forward + d_input + d_w;
  }
  if (print) table.print();
  return flops_in_all / seconds_in_all;
}

void bench_gemm(const BenchOptions& options) {
  pin_to_core(allowed_cores() - 1);
  const auto device = device::make_cpu_backend()->make_device({});
  for (const DType compute : options.dtypes) {
    const double peak = device::measured_cpu_peak_flops(compute);
    const auto name = std::string(name_of(compute));
    std::printf("%s matrix products of a layer, hidden %lld, one core\n", name.c_str(),
                static_cast<long long>(options.hidden));
    const double rate =
        gemm_rate(*device, bench_model(options), options.sequence_length, compute, options.repeats, true);
    if (std::isfinite(peak)) {
      std::printf("%s in all: %s GF/s, peak of multiply-adds %s GF/s, ratio %s\n\n", name.c_str(),
                  gflops(rate).c_str(), gflops(peak).c_str(), ratio(rate / peak).c_str());
    } else {
      std::printf("%s in all: %s GF/s; this processor has no %s dot product, peak n/a\n\n", name.c_str(),
                  gflops(rate).c_str(), name.c_str());
    }
  }
}

}  // namespace slimpipe::app::bench
