#pragma once
// Rotary position embedding on the CPU; the contracts are those of device/operators.h, shapes are already
// checked.

#include <cstdint>

#include "slimpipe/core/tensor.h"

namespace slimpipe::device::cpu {

void rope_table(Tensor inverse_frequency, std::int64_t first_position, float magnitude, Tensor cos,
                Tensor sin, int threads);
void rope_forward(Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v, int threads);
void rope_backward(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, Tensor d_qkv, int threads);

}  // namespace slimpipe::device::cpu
