#pragma once
// Softmax cross-entropy on the CPU; the contract is that of device/operators.h, shapes are already checked.

#include "slimpipe/core/tensor.h"

namespace slimpipe::device::cpu {

void cross_entropy(Tensor logits, Tensor targets, float gradient_scale, Tensor loss_sum, Tensor d_logits,
                   int threads);

}  // namespace slimpipe::device::cpu
