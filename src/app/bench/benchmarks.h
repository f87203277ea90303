#pragma once
// The parts of `slimpipe bench`. Each prints a table of what was reached against what this machine can do,
// measured in the same run.

#include <string>
#include <vector>

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/backend.h"

namespace slimpipe::app::bench {

struct BenchOptions {
  int repeats = 5;
  std::int64_t sequence_length = 2048;
  std::int64_t hidden = 1024;                               ///< gemm, step, pipeline, exchange
  std::int64_t head_size = 64;                              ///< step, pipeline, exchange
  std::int64_t layers = 2;                                  ///< step, pipeline, exchange
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};  ///< gemm, attention, step
  std::string format = "text";                              ///< step: text or json
  std::int64_t vocabulary = 257;                            ///< step: of the model
  int slices = 1;                                           ///< step, exchange: of the sequence
  std::string recompute = "none";                           ///< step: as memory.recompute
};

/// A Llama of these sizes; FFN 8/3 of hidden, rounded up to a multiple of 128.
[[nodiscard]] config::ModelConfig bench_model(const BenchOptions& options);

/// Processor time of one matrix product, by the product's own interface.
[[nodiscard]] double gemm_seconds(device::Device& device, const device::Gemm& gemm, int repeats);

/// FLOP/s of the matrix products of one training step of `model` (forward, input and weight gradients of
/// every linear, in their true shapes), each timed alone by the product's own interface and weighted by its
/// share of the step's FLOPs.
[[nodiscard]] double gemm_rate(device::Device& device, const config::ModelConfig& model, std::int64_t tokens,
                               DType compute, int repeats, bool print);

void bench_gemm(const BenchOptions& options);
void bench_attention(const BenchOptions& options);
void bench_step(const BenchOptions& options);
void bench_pipeline(const BenchOptions& options);
/// The last part of bench_pipeline.
void bench_executor(const BenchOptions& options);
void bench_exchange(const BenchOptions& options);

}  // namespace slimpipe::app::bench
