#include "device/cpu/operators.h"

#include "device/cpu/adamw.h"
#include "device/cpu/attention.h"
#include "device/cpu/cross_entropy.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/embedding.h"
#include "device/cpu/norm.h"
#include "device/cpu/rope.h"
#include "device/cpu/swiglu.h"
#include "device/operator_checks.h"

namespace slimpipe::device::cpu {

void CpuOperators::gemm(Stream& /*stream*/, const Gemm& gemm, Tensor workspace) {
  check_gemm(gemm);
  check_workspace("gemm", workspace, matrix_multiply_.workspace_bytes(gemm));
  matrix_multiply_.run(gemm, workspace);
}

std::int64_t CpuOperators::gemm_workspace_bytes(const Gemm& gemm) {
  check_gemm(gemm);
  return matrix_multiply_.workspace_bytes(gemm);
}

void CpuOperators::attention_forward(Stream& /*stream*/, const AttentionForward& args, Tensor workspace) {
  cpu::attention_forward(args, workspace, threads_);
}

std::int64_t CpuOperators::attention_forward_workspace_bytes(const AttentionForward& args) {
  return cpu::attention_forward_workspace_bytes(args, threads_);
}

void CpuOperators::merge_attention(Stream& /*stream*/, Tensor o_part, Tensor lse_part, Tensor o, Tensor lse) {
  cpu::merge_attention(o_part, lse_part, o, lse, threads_);
}

void CpuOperators::attention_delta(Stream& /*stream*/, Tensor o, Tensor d_o, Tensor delta) {
  cpu::attention_delta(o, d_o, delta);
}

void CpuOperators::attention_backward(Stream& /*stream*/, const AttentionBackward& args, Tensor workspace) {
  cpu::attention_backward(args, workspace, threads_);
}

std::int64_t CpuOperators::attention_backward_workspace_bytes(const AttentionBackward& args) {
  return cpu::attention_backward_workspace_bytes(args, threads_);
}

void CpuOperators::rms_norm_forward(Stream& /*stream*/, Tensor x, Tensor weight, float epsilon, Tensor y,
                                    Tensor rstd) {
  check_rms_norm_forward("rms_norm_forward", x, weight, y, rstd);
  cpu::rms_norm_forward(x, weight, epsilon, y, rstd, threads_);
}

void CpuOperators::add_rms_norm_forward(Stream& /*stream*/, Tensor x, Tensor residual, Tensor weight,
                                        float epsilon, Tensor sum, Tensor y, Tensor rstd) {
  check_add_rms_norm_forward(x, residual, weight, sum, y, rstd);
  cpu::add_rms_norm_forward(x, residual, weight, epsilon, sum, y, rstd, threads_);
}

void CpuOperators::rms_norm_backward(Stream& /*stream*/, Tensor dy, Tensor x, Tensor weight, Tensor rstd,
                                     Tensor residual_gradient, Tensor dx, Tensor d_weight, Tensor workspace) {
  check_rms_norm_backward(dy, x, weight, rstd, residual_gradient, dx, d_weight);
  check_workspace("rms_norm_backward", workspace, rms_norm_backward_workspace_bytes(x.dim(0), x.dim(1)));
  cpu::rms_norm_backward(dy, x, weight, rstd, residual_gradient, dx, d_weight, workspace, threads_);
}

std::int64_t CpuOperators::rms_norm_backward_workspace_bytes(std::int64_t tokens, std::int64_t hidden) {
  return cpu::rms_norm_backward_workspace_bytes(tokens, hidden);
}

void CpuOperators::rope_table(Stream& /*stream*/, Tensor inverse_frequency, std::int64_t first_position,
                              float magnitude, Tensor cos, Tensor sin) {
  check_rope_table(inverse_frequency, cos, sin);
  cpu::rope_table(inverse_frequency, first_position, magnitude, cos, sin, threads_);
}

void CpuOperators::rope_forward(Stream& /*stream*/, Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k,
                                Tensor v) {
  check_rope_forward(qkv, cos, sin, q, k, v);
  cpu::rope_forward(qkv, cos, sin, q, k, v, threads_);
}

void CpuOperators::rope_backward(Stream& /*stream*/, Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin,
                                 Tensor d_qkv) {
  check_rope_backward(dq, dk, dv, cos, sin, d_qkv);
  cpu::rope_backward(dq, dk, dv, cos, sin, d_qkv, threads_);
}

void CpuOperators::swiglu_forward(Stream& /*stream*/, Tensor gate_up, Tensor y) {
  check_swiglu_forward(gate_up, y);
  cpu::swiglu_forward(gate_up, y, threads_);
}

void CpuOperators::swiglu_backward(Stream& /*stream*/, Tensor dy, Tensor gate_up, Tensor d_gate_up) {
  check_swiglu_backward(dy, gate_up, d_gate_up);
  cpu::swiglu_backward(dy, gate_up, d_gate_up, threads_);
}

void CpuOperators::embedding_forward(Stream& /*stream*/, Tensor tokens, Tensor table, Tensor y) {
  check_embedding_forward(tokens, table, y);
  cpu::embedding_forward(tokens, table, y, threads_);
}

void CpuOperators::embedding_backward(Stream& /*stream*/, Tensor tokens, Tensor dy, Tensor d_table) {
  check_embedding_backward(tokens, dy, d_table);
  cpu::embedding_backward(tokens, dy, d_table);
}

void CpuOperators::cross_entropy(Stream& /*stream*/, Tensor logits, Tensor targets, float gradient_scale,
                                 Tensor loss_sum, Tensor d_logits) {
  check_cross_entropy(logits, targets, loss_sum, d_logits);
  cpu::cross_entropy(logits, targets, gradient_scale, loss_sum, d_logits, threads_);
}

void CpuOperators::adamw(Stream& /*stream*/, const AdamW& step) {
  check_adamw(step);
  cpu::adamw(step, threads_);
}

void CpuOperators::sum_of_squares(Stream& /*stream*/, Tensor x, Tensor result) {
  check_sum_of_squares(x, result);
  cpu::sum_of_squares(x, result);
}

void CpuOperators::add(Stream& /*stream*/, Tensor a, Tensor b, Tensor y) {
  check_add(a, b, y);
  cpu::add(a, b, y, threads_);
}

void CpuOperators::copy(Stream& /*stream*/, Tensor x, Tensor y) {
  check_copy(x, y);
  cpu::copy(x, y, threads_);
}

void CpuOperators::zero(Stream& /*stream*/, Tensor x) {
  check_zero(x);
  cpu::zero(x, threads_);
}

}  // namespace slimpipe::device::cpu
