#pragma once
// The shapes, types and orders that device/operators.h states for attention, for every backend. Each throws
// slimpipe::Error naming the operator, the tensor and what was expected.

#include "slimpipe/device/operators.h"

namespace slimpipe::device {

void check_attention_forward(const AttentionForward& args);
void check_merge_attention(const Tensor& o_part, const Tensor& lse_part, const Tensor& o, const Tensor& lse);
void check_attention_delta(const Tensor& o, const Tensor& d_o, const Tensor& delta);
void check_attention_backward(const AttentionBackward& args);

}  // namespace slimpipe::device
