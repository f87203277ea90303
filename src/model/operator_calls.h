#pragma once
// Operators that need workspace, with the workspace taken from the device's arena for the call. The arena
// may hand the memory out again at once: whatever is issued later runs after it on the same stream.

#include "slimpipe/device/backend.h"

namespace slimpipe::model {

void run_gemm(device::Device& device, const device::Gemm& gemm);
void run_attention_forward(device::Device& device, const device::AttentionForward& attention);
void run_attention_backward(device::Device& device, const device::AttentionBackward& attention);
/// Tensors as in Operators::rms_norm_backward.
void run_rms_norm_backward(device::Device& device, Tensor dy, Tensor x, Tensor weight, Tensor rstd,
                           Tensor residual_gradient, Tensor dx, Tensor d_weight);

}  // namespace slimpipe::model
