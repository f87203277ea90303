#pragma once
// The operator interface on the CPU: checks, then the family that does the work.

#include <cstdint>

#include "slimpipe/device/operators.h"

#include "device/cpu/matrix_multiply.h"

namespace slimpipe::device::cpu {

class CpuOperators final : public Operators {
 public:
  CpuOperators(int threads, BFloat16Products products) : threads_(threads), matrix_multiply_(products) {}

  void gemm(Stream&, const Gemm&, Tensor workspace) override;
  std::int64_t gemm_workspace_bytes(const Gemm&) override;

  void attention_forward(Stream&, const AttentionForward&, Tensor workspace) override;
  std::int64_t attention_forward_workspace_bytes(const AttentionForward&) override;
  void merge_attention(Stream&, Tensor o_part, Tensor lse_part, Tensor o, Tensor lse) override;
  void attention_delta(Stream&, Tensor o, Tensor d_o, Tensor delta) override;
  void attention_backward(Stream&, const AttentionBackward&, Tensor workspace) override;
  std::int64_t attention_backward_workspace_bytes(const AttentionBackward&) override;

  void rms_norm_forward(Stream&, Tensor x, Tensor weight, float epsilon, Tensor y, Tensor rstd) override;
  void add_rms_norm_forward(Stream&, Tensor x, Tensor residual, Tensor weight, float epsilon, Tensor sum,
                            Tensor y, Tensor rstd) override;
  void rms_norm_backward(Stream&, Tensor dy, Tensor x, Tensor weight, Tensor rstd, Tensor residual_gradient,
                         Tensor dx, Tensor d_weight, Tensor workspace) override;
  std::int64_t rms_norm_backward_workspace_bytes(std::int64_t tokens, std::int64_t hidden) override;

  void rope_table(Stream&, Tensor inverse_frequency, std::int64_t first_position, float magnitude, Tensor cos,
                  Tensor sin) override;
  void rope_forward(Stream&, Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v) override;
  void rope_backward(Stream&, Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, Tensor d_qkv) override;

  void swiglu_forward(Stream&, Tensor gate_up, Tensor y) override;
  void swiglu_backward(Stream&, Tensor dy, Tensor gate_up, Tensor d_gate_up) override;

  void embedding_forward(Stream&, Tensor tokens, Tensor table, Tensor y) override;
  void embedding_backward(Stream&, Tensor tokens, Tensor dy, Tensor d_table) override;
  void cross_entropy(Stream&, Tensor logits, Tensor targets, float gradient_scale, Tensor loss_sum,
                     Tensor d_logits) override;

  void adamw(Stream&, const AdamW&) override;
  void sum_of_squares(Stream&, Tensor x, Tensor result) override;
  void add(Stream&, Tensor a, Tensor b, Tensor y) override;
  void copy(Stream&, Tensor x, Tensor y) override;
  void zero(Stream&, Tensor x) override;

 private:
  int threads_;
  MatrixMultiply matrix_multiply_;
};

}  // namespace slimpipe::device::cpu
