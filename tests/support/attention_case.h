#pragma once
// One call of attention's forward and backward on the CPU with all its tensors, and its comparison with the
// double-precision definition.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "slimpipe/device/operators.h"

#include "device/cpu/attention.h"
#include "support/attention_reference.h"
#include "support/catch.h"
#include "support/compare.h"
#include "support/generate.h"

namespace slimpipe::testing {

struct AttentionShape {
  std::int64_t tokens = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 8;
  std::int64_t query_position = 0;
  std::vector<std::int64_t> blocks;  ///< lengths; empty: one block that ends with the queries
  std::vector<std::int64_t> documents;
  std::int64_t first_key = 0;
  double query_scale = 1;

  [[nodiscard]] std::vector<std::int64_t> lengths() const {
    return blocks.empty() ? std::vector{query_position + tokens - first_key} : blocks;
  }
  [[nodiscard]] std::string describe() const {
    return fmt::format("T {} N {} K {} D {} from {}, blocks [{}] from {}, documents [{}], queries x {}",
                       tokens, heads, kv_heads, head_size, query_position, fmt::join(lengths(), " "),
                       first_key, fmt::join(documents, " "), query_scale);
  }
};

/// All tensors of one forward and backward. K, V and their gradients live in memory of their own per block.
class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, DType dtype)
      : shape_(shape),
        q(normal(dtype, {shape.tokens, shape.heads, shape.head_size}, 1, shape.query_scale)),
        d_o(normal(dtype, {shape.tokens, shape.heads, shape.head_size}, 2)),
        o(dtype, {shape.tokens, shape.heads, shape.head_size}),
        lse(DType::kF32, {shape.heads, shape.tokens}),
        delta(DType::kF32, {shape.heads, shape.tokens}),
        dq(DType::kF32, {shape.tokens, shape.heads, shape.head_size}) {
    const std::vector<std::int64_t> lengths = shape.lengths();
    std::int64_t keys = 0;
    for (const std::int64_t length : lengths) keys += length;
    // Drawn as one sequence, so that the values do not depend on how it is cut.
    const OwnedTensor all_k = normal(dtype, {keys, shape.kv_heads, shape.head_size}, 3);
    const OwnedTensor all_v = normal(dtype, {keys, shape.kv_heads, shape.head_size}, 4);
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      k.push_back(copy_of(all_k.view().rows(begin, begin + length)));
      v.push_back(copy_of(all_v.view().rows(begin, begin + length)));
      dk.push_back(constant(DType::kF32, {length, shape.kv_heads, shape.head_size}, 0));
      dv.push_back(constant(DType::kF32, {length, shape.kv_heads, shape.head_size}, 0));
      blocks_.push_back({k.back(), v.back(), shape.first_key + begin});
      gradients_.push_back({dk.back(), dv.back()});
      begin += length;
    }
  }
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  [[nodiscard]] device::AttentionForward forward_arguments() const {
    return {.q = q,
            .query_position = shape_.query_position,
            .blocks = blocks_,
            .document_starts = shape_.documents,
            .scale = scale(),
            .o = o,
            .lse = lse};
  }
  [[nodiscard]] device::AttentionBackward backward_arguments() const {
    return {.q = q,
            .query_position = shape_.query_position,
            .blocks = blocks_,
            .document_starts = shape_.documents,
            .scale = scale(),
            .d_o = d_o,
            .lse = lse,
            .delta = delta,
            .dq = dq,
            .kv_gradients = gradients_};
  }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_size)); }

  void run_forward(int threads = 1) const {
    const device::AttentionForward args = forward_arguments();
    const OwnedTensor workspace = poisoned(device::cpu::attention_forward_workspace_bytes(args, threads));
    device::cpu::attention_forward(args, workspace, threads);
    CHECK(workspace.intact());
    CHECK((o.intact() && lse.intact()));
  }
  void run_backward(int threads = 1) const {
    device::cpu::attention_delta(o, d_o, delta);
    const device::AttentionBackward args = backward_arguments();
    const OwnedTensor workspace = poisoned(device::cpu::attention_backward_workspace_bytes(args, threads));
    device::cpu::attention_backward(args, workspace, threads);
    CHECK(workspace.intact());
    CHECK((dq.intact() && delta.intact()));
    for (std::size_t i = 0; i < dk.size(); ++i) CHECK((dk[i].intact() && dv[i].intact()));
  }

  /// All results, bit by bit.
  [[nodiscard]] std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all;
    const auto append = [&](const OwnedTensor& x) {
      const auto bytes = x.bytes();
      all.insert(all.end(), bytes.begin(), bytes.end());
    };
    for (const OwnedTensor* x : {&o, &lse, &dq}) append(*x);
    for (const std::vector<OwnedTensor>* list : {&dk, &dv})
      for (const OwnedTensor& x : *list) append(x);
    return all;
  }

 private:
  static OwnedTensor copy_of(const Tensor& x) {
    OwnedTensor copy(x.dtype(), {x.dim(0), x.dim(1), x.dim(2)});
    fill_values(copy, values_of(x));
    return copy;
  }
  /// A workspace of NaN.
  static OwnedTensor poisoned(std::int64_t bytes) { return {DType::kF32, {bytes / size_of(DType::kF32)}}; }

  AttentionShape shape_;
  std::vector<device::KvBlock> blocks_;
  std::vector<device::KvGradientBlock> gradients_;

 public:
  OwnedTensor q, d_o, o, lse, delta, dq;
  std::vector<OwnedTensor> k, v, dk, dv;
};

/// How far results may be from the definition, in units of the tolerance of what they are stored in.
inline double allowed_factor(const AttentionShape& shape, DType compute, DType stored) {
  // A score's own rounding error grows with its size and becomes a relative error of its weight.
  const double in_fp32 = 4.0 + 4.0 * shape.query_scale;
  if (compute == DType::kF32) return in_fp32;
  // Weights, their gradients and o, hence delta, are each rounded to bf16 once.
  const double to_fp32 = tolerance_of(DType::kBF16).relative / tolerance_of(DType::kF32).relative;
  const double in_bf16 = 3.0 + in_fp32 / to_fp32;
  return stored == DType::kF32 ? in_bf16 * to_fp32 : in_bf16;
}

inline double largest(const std::vector<double>& values) {
  double magnitude = 0;
  for (const double value : values)
    if (std::isfinite(value)) magnitude = std::max(magnitude, std::abs(value));
  return magnitude;
}

/// Errors are judged by the largest element, and `unit` where all may cancel.
inline void check_close(const char* what, const OwnedTensor& actual, const std::vector<double>& expected,
                        const AttentionShape& shape, DType dtype, double unit = 1.0) {
  INFO(what << " of " << name_of(dtype) << ", " << shape.describe());
  CHECK(compare(actual, expected, allowed_factor(shape, dtype, actual.view().dtype()),
                std::max(unit, largest(expected))) == kAgrees);
}

inline void check_against_reference(const AttentionShape& shape, DType dtype) {
  const AttentionCase c(shape, dtype);
  c.run_forward();
  c.run_backward();
  const auto expected = reference_attention(c.forward_arguments(), c.d_o);
  check_close("o", c.o, expected.o, shape, dtype);
  check_close("lse", c.lse, expected.lse, shape, dtype);
  check_close("delta", c.delta, expected.delta, shape, dtype);
  check_close("dq", c.dq, expected.dq, shape, dtype);
  for (std::size_t i = 0; i < c.dk.size(); ++i) {
    check_close("dk", c.dk[i], expected.dk[i], shape, dtype, shape.query_scale);
    check_close("dv", c.dv[i], expected.dv[i], shape, dtype);
  }
}

inline void check_both_types(const AttentionShape& shape) {
  check_against_reference(shape, DType::kF32);
  check_against_reference(shape, DType::kBF16);
}

}  // namespace slimpipe::testing
