#pragma once
// SwiGLU on the CPU; the contracts are those of device/operators.h, shapes are already checked.

#include "slimpipe/core/tensor.h"

namespace slimpipe::device::cpu {

void swiglu_forward(Tensor gate_up, Tensor y, int threads);
void swiglu_backward(Tensor dy, Tensor gate_up, Tensor d_gate_up, int threads);

}  // namespace slimpipe::device::cpu
