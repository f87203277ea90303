#pragma once
// Plain memory and sums on the CPU; the contracts are those of device/operators.h, shapes are already
// checked.

#include "slimpipe/core/tensor.h"

namespace slimpipe::device::cpu {

void sum_of_squares(Tensor x, Tensor result);
void add(Tensor a, Tensor b, Tensor y, int threads);
void copy(Tensor x, Tensor y, int threads);
void zero(Tensor x, int threads);

}  // namespace slimpipe::device::cpu
