#pragma once
// The operators a backend supplies. Layers and optimizer are written once, above this interface.
//
// Contracts that hold for all of them:
//  - Shapes are stated beside each field: T tokens of the slice, H hidden, N query heads, K KV heads,
//    D head size, F FFN size, V vocabulary. Matrices are row-major, last dimension contiguous.
//  - "compute" is the run's compute type, fp32 or bf16; all arithmetic accumulates in fp32 or wider.
//  - `=` outputs are overwritten, `+=` outputs are added to. Outputs alias inputs only where said.
//  - Asynchronous on the stream; no operator synchronises or lets the host read device memory.
//  - Deterministic: the order of every sum depends on shapes alone, never on threads or time.
//  - Workspace, where an operator has a `_workspace_bytes`, is the caller's, uninitialised, 64-byte aligned.
//  - Zero tokens is legal and does nothing (a `=` sum becomes 0).
//  - A wrong shape or type throws slimpipe::Error before anything is written.

#include <cstdint>
#include <span>

#include "slimpipe/core/tensor.h"
#include "slimpipe/device/stream.h"

namespace slimpipe::device {

/// C = op(A)·op(B), or C += op(A)·op(B). A, B of one compute type; C fp32 or that type.
/// Row strides may be padded. Forward y = x·Wᵀ (transpose_b), input gradient dx = dy·W, weight
/// gradient dW += dyᵀ·x (transpose_a, accumulate, C fp32).
struct Gemm {
  Tensor a;  ///< [M, Kd], or [Kd, M] with transpose_a
  Tensor b;  ///< [Kd, N], or [N, Kd] with transpose_b
  Tensor c;  ///< [M, N]
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};

/// K and V of one slice in one layer. Token-major, so any range of tokens is contiguous.
struct KvBlock {
  Tensor k;                         ///< [T, K, D] compute, RoPE applied
  Tensor v;                         ///< [T, K, D] compute
  std::int64_t first_position = 0;  ///< position of row 0 in the sequence
};
/// Their gradients.
struct KvGradientBlock {
  Tensor dk;  ///< [T, K, D] fp32
  Tensor dv;  ///< [T, K, D] fp32
};

/// softmax(scale · Q·Kᵀ)·V over a LIST of KV blocks, without joining them. A query at position i sees
/// the keys at positions j <= i (so a block that lies wholly before the queries is unmasked), and, with
/// documents, only those of its own document: j >= start of the document that holds i.
struct AttentionForward {
  Tensor q;                                       ///< [T, N, D] compute
  std::int64_t query_position = 0;                ///< position of row 0 of q
  std::span<const KvBlock> blocks;                ///< ascending positions, any lengths; N % K == 0
  std::span<const std::int64_t> document_starts;  ///< ascending positions; empty: one document
  float scale = 0.0F;
  Tensor o;    ///< = [T, N, D] compute; a row that sees no key is 0
  Tensor lse;  ///< = [N, T] fp32, natural logarithm of the sum of exponentials; -inf for such a row
};

/// Backward of the same. `lse` is the final one; delta = rowsum(dO ∘ O) from attention_delta.
struct AttentionBackward {
  Tensor q;  ///< [T, N, D] compute
  std::int64_t query_position = 0;
  std::span<const KvBlock> blocks;
  std::span<const std::int64_t> document_starts;
  float scale = 0.0F;
  Tensor d_o;                                     ///< [T, N, D] compute
  Tensor lse;                                     ///< [N, T] fp32
  Tensor delta;                                   ///< [N, T] fp32
  Tensor dq;                                      ///< = [T, N, D] fp32
  std::span<const KvGradientBlock> kv_gradients;  ///< += one for each block
};

struct AdamW {
  Tensor parameter;  ///< [n] fp32, updated in place; or bf16, the weights of values that are split in two
  Tensor remainder;  ///< [n] int16, updated: their remainders (core/split_float.h); empty with fp32
  Tensor gradient;   ///< [n] fp32
  Tensor moment1;    ///< [n] fp32, updated
  Tensor moment2;    ///< [n] fp32, updated
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;    ///< decoupled; 0 for vectors
  double gradient_scale = 1;  ///< clipping factor, multiplies the gradient first
  std::int64_t step = 1;      ///< 1-based, for the bias corrections
};

class Operators {
 public:
  virtual ~Operators() = default;

  // --- matrix products
  virtual void gemm(Stream&, const Gemm&, Tensor workspace) = 0;
  [[nodiscard]] virtual std::int64_t gemm_workspace_bytes(const Gemm&) = 0;

  // --- attention
  virtual void attention_forward(Stream&, const AttentionForward&, Tensor workspace) = 0;
  [[nodiscard]] virtual std::int64_t attention_forward_workspace_bytes(const AttentionForward&) = 0;
  /// Joins the results of the same queries over other keys: o [T, N, D] compute and lse [N, T] fp32 become
  /// those over all keys. lse = max + ln(Σ exp(lse_i - max)), o = Σ exp(lse_i - lse)·o_i; a part that sees no
  /// key (lse_i = -inf) adds nothing, two such stay one.
  virtual void merge_attention(Stream&, Tensor o_part, Tensor lse_part, Tensor o, Tensor lse) = 0;
  /// delta = [N, T] fp32, rowsum over D of d_o ∘ o; o and d_o [T, N, D] compute.
  virtual void attention_delta(Stream&, Tensor o, Tensor d_o, Tensor delta) = 0;
  virtual void attention_backward(Stream&, const AttentionBackward&, Tensor workspace) = 0;
  [[nodiscard]] virtual std::int64_t attention_backward_workspace_bytes(const AttentionBackward&) = 0;

  // --- norms. rstd = 1 / sqrt(mean(x²) + epsilon), y = x · rstd · weight
  /// x [T, H], weight [H], y = [T, H] compute; rstd = [T] fp32.
  virtual void rms_norm_forward(Stream&, Tensor x, Tensor weight, float epsilon, Tensor y, Tensor rstd) = 0;
  /// sum = x + residual (may alias either), then y = norm(sum). All [T, H] compute.
  virtual void add_rms_norm_forward(Stream&, Tensor x, Tensor residual, Tensor weight, float epsilon,
                                    Tensor sum, Tensor y, Tensor rstd) = 0;
  /// dx = gradient of the norm's input plus `residual_gradient` (empty: nothing is added; may alias dx).
  /// dy, x, dx [T, H] compute; rstd [T]; d_weight += [H] fp32, rows in ascending order of fixed groups.
  virtual void rms_norm_backward(Stream&, Tensor dy, Tensor x, Tensor weight, Tensor rstd,
                                 Tensor residual_gradient, Tensor dx, Tensor d_weight, Tensor workspace) = 0;
  [[nodiscard]] virtual std::int64_t rms_norm_backward_workspace_bytes(std::int64_t tokens,
                                                                       std::int64_t hidden) = 0;

  // --- rotary position embedding (rotate-half convention: element i pairs with i + D/2)
  /// cos, sin = [T, D/2] fp32 of angle (first_position + t) · inverse_frequency[i], each times
  /// `magnitude`. inverse_frequency [D/2] fp64; angles in double precision: positions reach millions.
  virtual void rope_table(Stream&, Tensor inverse_frequency, std::int64_t first_position, float magnitude,
                          Tensor cos, Tensor sin) = 0;
  /// qkv [T, (N + 2K)·D] compute, heads of q then k then v -> q = [T, N, D] and k = [T, K, D] rotated,
  /// v = [T, K, D] copied.
  virtual void rope_forward(Stream&, Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v) = 0;
  /// dq [T, N, D], dk, dv [T, K, D] fp32 -> d_qkv = [T, (N + 2K)·D] compute, q and k parts rotated back.
  virtual void rope_backward(Stream&, Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin,
                             Tensor d_qkv) = 0;

  // --- feed-forward gate
  /// y = [T, F], silu(gate) · up, gate_up [T, 2F] holds gate then up. Compute type.
  virtual void swiglu_forward(Stream&, Tensor gate_up, Tensor y) = 0;
  /// d_gate_up = [T, 2F] (may alias gate_up) from dy [T, F].
  virtual void swiglu_backward(Stream&, Tensor dy, Tensor gate_up, Tensor d_gate_up) = 0;

  // --- embedding and loss
  /// y = [T, H], rows of table [V, H] chosen by tokens [T] int32, which are checked < V by the data loader.
  /// Compute type.
  virtual void embedding_forward(Stream&, Tensor tokens, Tensor table, Tensor y) = 0;
  /// d_table += [V, H] fp32 from dy [T, H] compute, in token order.
  virtual void embedding_backward(Stream&, Tensor tokens, Tensor dy, Tensor d_table) = 0;
  /// Cross-entropy of a chunk of tokens. logits [T, V] fp32; targets [T] int32, negative = ignored.
  /// loss_sum += [1] fp64, the sum over valid targets. Where d_logits is not empty:
  /// d_logits = (softmax - onehot) · gradient_scale, [T, V] fp32 (may alias logits) or bf16; rows with
  /// an ignored target are 0 (selected, not multiplied, so NaN in a padded row cannot leak).
  virtual void cross_entropy(Stream&, Tensor logits, Tensor targets, float gradient_scale, Tensor loss_sum,
                             Tensor d_logits) = 0;

  // --- optimizer and plain memory
  virtual void adamw(Stream&, const AdamW&) = 0;
  /// result = [1] fp64, sum of squares of x (fp32, any contiguous shape); NaN or infinity propagate.
  virtual void sum_of_squares(Stream&, Tensor x, Tensor result) = 0;
  /// y = a + b, all of one type and shape; y may alias either.
  virtual void add(Stream&, Tensor a, Tensor b, Tensor y) = 0;
  /// y = x converted, between fp32 and bf16 or of one type; matrices may have row strides.
  virtual void copy(Stream&, Tensor x, Tensor y) = 0;
  virtual void zero(Stream&, Tensor x) = 0;
};

}  // namespace slimpipe::device
