#pragma once
// Operators that need workspace, with the workspace taken from the device's arena for the call. The arena
// may hand the memory out again at once: whatever is issued later runs after it on the same stream.

#include <cstdint>

#include "slimpipe/device/execution_context.h"

namespace slimpipe::model {

/// 1 / √D
[[nodiscard]] float attention_scale(std::int64_t head_size);

void run_gemm(const device::ExecutionContext& context, const device::Gemm& gemm);
void run_attention_forward(const device::ExecutionContext& context,
                           const device::AttentionForward& attention);
void run_attention_backward(const device::ExecutionContext& context,
                            const device::AttentionBackward& attention);
/// Tensors as in Operators::rms_norm_backward.
void run_rms_norm_backward(const device::ExecutionContext& context, Tensor dy, Tensor x, Tensor weight,
                           Tensor rstd, Tensor residual_gradient, Tensor dx, Tensor d_weight);

}  // namespace slimpipe::model
