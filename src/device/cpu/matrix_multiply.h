#pragma once
// Matrix products by oneDNN, with the primitives of every shape met so far kept ready.

#include <cstdint>
#include <memory>

#include "slimpipe/device/operators.h"

namespace slimpipe::device::cpu {

/// How bf16 products are made.
enum class BFloat16Products : std::uint8_t {
  kNative,     ///< by oneDNN's bf16 kernels
  kConverted,  ///< from fp32 copies of parts, in a workspace of some MiB, by oneDNN's fp32 kernels
};
/// kNative where oneDNN has an optimised kernel for this CPU (on x86: AVX-512), else kConverted.
[[nodiscard]] BFloat16Products best_bfloat16_products();

/// Belongs to one device; not thread-safe. Large products use up to `threads` OpenMP threads.
class MatrixMultiply {
 public:
  explicit MatrixMultiply(BFloat16Products products);
  ~MatrixMultiply();
  MatrixMultiply(const MatrixMultiply&) = delete;
  MatrixMultiply& operator=(const MatrixMultiply&) = delete;

  void run(const Gemm& gemm, Tensor workspace);
  [[nodiscard]] std::int64_t workspace_bytes(const Gemm& gemm);

 private:
  class Cache;
  void run_converted(const Gemm& gemm, Tensor workspace);

  BFloat16Products products_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace slimpipe::device::cpu
