#include <algorithm>
#include <cmath>
#include <cstdio>

#include "slimpipe/device/peak.h"

#include "app/bench/benchmarks.h"
#include "app/bench/measure.h"

namespace slimpipe::app::bench {
namespace {

/// Causal attention of a whole sequence whose K and V lie in `blocks` equal blocks.
class AttentionCase {
 public:
  AttentionCase(device::Device& device, DType compute, std::int64_t tokens, std::int64_t heads,
                std::int64_t head_size, int blocks)
      : device_(device),
        q_(device, compute, {tokens, heads, head_size}),
        o_(device, compute, {tokens, heads, head_size}),
        d_o_(device, compute, {tokens, heads, head_size}),
        dq_(device, DType::kF32, {tokens, heads, head_size}),
        lse_(device, DType::kF32, {heads, tokens}),
        delta_(device, DType::kF32, {heads, tokens}),
        scale_(1.0F / std::sqrt(static_cast<float>(head_size))) {
    const std::int64_t rows = tokens / blocks;
    for (int i = 0; i < blocks; ++i) {
      const RandomTensor& k =
          keep_.emplace_back(device, compute, std::initializer_list<std::int64_t>{rows, heads, head_size});
      const Tensor k_tensor = k.tensor();
      const Tensor v =
          keep_.emplace_back(device, compute, std::initializer_list<std::int64_t>{rows, heads, head_size})
              .tensor();
      const Tensor dk =
          keep_.emplace_back(device, DType::kF32, std::initializer_list<std::int64_t>{rows, heads, head_size})
              .tensor();
      const Tensor dv =
          keep_.emplace_back(device, DType::kF32, std::initializer_list<std::int64_t>{rows, heads, head_size})
              .tensor();
      blocks_.push_back({k_tensor, v, i * rows});
      gradients_.push_back({dk, dv});
    }
    // Multiply-adds of query–key pairs that see each other: forward Q·Kᵀ and P·V; backward five products.
    pair_flops_ = 2.0 * static_cast<double>(heads * head_size) * static_cast<double>(tokens) *
                  static_cast<double>(tokens + 1) / 2;
  }

  double forward_rate(int repeats) {
    const device::AttentionForward args{.q = q_.tensor(),
                                        .blocks = blocks_,
                                        .document_starts = {},
                                        .scale = scale_,
                                        .o = o_.tensor(),
                                        .lse = lse_.tensor()};
    device::Operators& ops = device_.operators();
    const Scratch scratch(device_, ops.attention_forward_workspace_bytes(args));
    const double seconds =
        time_seconds(repeats, [&] { ops.attention_forward(device_.stream(), args, scratch.tensor); }).median;
    return 2 * pair_flops_ / seconds;
  }

  double backward_rate(int repeats) {
    device::Operators& ops = device_.operators();
    ops.attention_delta(device_.stream(), o_.tensor(), d_o_.tensor(), delta_.tensor());
    const device::AttentionBackward args{.q = q_.tensor(),
                                         .blocks = blocks_,
                                         .document_starts = {},
                                         .scale = scale_,
                                         .d_o = d_o_.tensor(),
                                         .lse = lse_.tensor(),
                                         .delta = delta_.tensor(),
                                         .dq = dq_.tensor(),
                                         .kv_gradients = gradients_};
    const Scratch scratch(device_, ops.attention_backward_workspace_bytes(args));
    const double seconds =
        time_seconds(repeats, [&] { ops.attention_backward(device_.stream(), args, scratch.tensor); }).median;
    return 5 * pair_flops_ / seconds;
  }

 private:
  struct Scratch {
    Scratch(device::Device& device, std::int64_t bytes)
        : buffer(device.arena(), device::Scope::kWorkspace, bytes, "attention scratch"),
          tensor(buffer.data(), DType::kF32, {bytes / size_of(DType::kF32)}) {}
    device::Buffer buffer;
    Tensor tensor;
  };

  device::Device& device_;
  RandomTensor q_, o_, d_o_, dq_, lse_, delta_;
  std::vector<RandomTensor> keep_;
  std::vector<device::KvBlock> blocks_;
  std::vector<device::KvGradientBlock> gradients_;
  float scale_;
  double pair_flops_ = 0;
};

/// FLOP/s of matrix products of the kernel's shapes: Q·Kᵀ of one head, M x D and N x D, with as many rows of
/// each as the kernel has, up to a number that keeps the product from outgrowing the machine's memory.
double product_rate(device::Device& device, DType compute, std::int64_t tokens, std::int64_t head_size,
                    int blocks, int repeats) {
  constexpr std::int64_t kMostRows = 4096;
  const std::int64_t m = std::min(tokens, kMostRows);
  const std::int64_t n = std::min(tokens / blocks, kMostRows);
  const RandomTensor q(device, compute, {m, head_size});
  const RandomTensor k(device, compute, {n, head_size});
  const RandomTensor scores(device, DType::kF32, {m, n});
  const double seconds = gemm_seconds(
      device, {.a = q.tensor(), .b = k.tensor(), .c = scores.tensor(), .transpose_b = true}, repeats);
  return 2.0 * static_cast<double>(m * n * head_size) / seconds;
}

}  // namespace

void bench_attention(const BenchOptions& options) {
  pin_to_core(allowed_cores() - 1);
  const auto device = device::make_cpu_backend()->make_device({});
  const std::int64_t tokens = options.sequence_length;
  std::printf(
      "causal attention of %lld tokens, one core; ratios to the fp32 multiply-add peak (FMA) and to "
      "oneDNN's\n"
      "products of the same type and shapes (GEMM: Q·Kᵀ of a head and a block), all of the same run\n",
      static_cast<long long>(tokens));
  Table table({"type", "head size", "K,V blocks", "forward GF/s", "of FMA", "of GEMM", "backward GF/s",
               "of FMA", "of GEMM", "FMA GF/s", "GEMM GF/s"});
  for (const DType compute : options.dtypes) {
    for (const std::int64_t head_size : {64, 128}) {
      for (const int blocks : {1, 8}) {
        if (tokens % blocks != 0) continue;
        const std::int64_t heads = std::max<std::int64_t>(1, 512 / head_size);
        AttentionCase attention(*device, compute, tokens, heads, head_size, blocks);
        const double peak = device::measured_cpu_peak_flops(DType::kF32);
        const double gemm = product_rate(*device, compute, tokens, head_size, blocks, options.repeats);
        const double forward = attention.forward_rate(options.repeats);
        const double backward = attention.backward_rate(options.repeats);
        table.row({std::string(name_of(compute)), std::to_string(head_size), std::to_string(blocks),
                   gflops(forward), ratio(forward / peak), ratio(forward / gemm), gflops(backward),
                   ratio(backward / peak), ratio(backward / gemm), gflops(peak), gflops(gemm)});
      }
    }
  }
  table.print();
}

}  // namespace slimpipe::app::bench
