#pragma once
// RMSNorm on the CPU; the contracts are those of device/operators.h, shapes are already checked.

#include <cstdint>

#include "slimpipe/core/tensor.h"

namespace slimpipe::device::cpu {

void rms_norm_forward(Tensor x, Tensor weight, float epsilon, Tensor y, Tensor rstd, int threads);
void add_rms_norm_forward(Tensor x, Tensor residual, Tensor weight, float epsilon, Tensor sum, Tensor y,
                          Tensor rstd, int threads);
void rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor rstd, Tensor residual_gradient, Tensor dx,
                       Tensor d_weight, Tensor workspace, int threads);
[[nodiscard]] std::int64_t rms_norm_backward_workspace_bytes(std::int64_t tokens, std::int64_t hidden);

}  // namespace slimpipe::device::cpu
