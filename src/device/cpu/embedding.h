#pragma once
// Token embedding on the CPU; the contracts are those of device/operators.h, shapes are already checked.

#include "slimpipe/core/tensor.h"

namespace slimpipe::device::cpu {

void embedding_forward(Tensor tokens, Tensor table, Tensor y, int threads);
void embedding_backward(Tensor tokens, Tensor dy, Tensor d_table);

}  // namespace slimpipe::device::cpu
