#pragma once
// The shapes and types that device/operators.h states, checked in one place for every backend. Each
// throws slimpipe::Error naming the operator, the tensor and what was expected.

#include <cstdint>

#include "slimpipe/device/operators.h"

namespace slimpipe::device {

void check_workspace(const char* name, Tensor workspace, std::int64_t bytes_needed);
void check_gemm(const Gemm& gemm);
void check_rms_norm_forward(const char* name, Tensor x, Tensor weight, Tensor y, Tensor rstd);
void check_add_rms_norm_forward(Tensor x, Tensor residual, Tensor weight, Tensor sum, Tensor y, Tensor rstd);
void check_rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor rstd, Tensor residual_gradient,
                             Tensor dx, Tensor d_weight);
void check_rope_table(Tensor inverse_frequency, Tensor cos, Tensor sin);
void check_rope_forward(Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v);
void check_rope_backward(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, Tensor d_qkv);
void check_swiglu_forward(Tensor gate_up, Tensor y);
void check_swiglu_backward(Tensor dy, Tensor gate_up, Tensor d_gate_up);
void check_embedding_forward(Tensor tokens, Tensor table, Tensor y);
void check_embedding_backward(Tensor tokens, Tensor dy, Tensor d_table);
void check_cross_entropy(Tensor logits, Tensor targets, Tensor loss_sum, Tensor d_logits);
void check_adamw(const AdamW& step);
void check_sum_of_squares(Tensor x, Tensor result);
void check_add(Tensor a, Tensor b, Tensor y);
void check_copy(Tensor x, Tensor y);
void check_zero(Tensor x);

}  // namespace slimpipe::device
