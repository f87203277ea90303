#pragma once
// The AdamW step on the CPU; the contract is that of device/operators.h, shapes are already checked.

#include "slimpipe/device/operators.h"

namespace slimpipe::device::cpu {

/// A step's constants, worked out in double precision.
struct AdamWConstants {
  float gradient_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float decay;                    ///< 1 - learning rate · weight decay
  float step_size;                ///< learning rate / (1 - beta1^step)
  float inverse_root_correction;  ///< 1 / sqrt(1 - beta2^step)
  float epsilon;
};

void adamw(const AdamW& step, int threads);

}  // namespace slimpipe::device::cpu
