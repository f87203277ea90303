#include "model/operator_calls.h"

#include <cmath>

namespace slimpipe::model {
namespace {

/// Scratch of one operator call; without bytes neither an allocation nor a tensor.
struct Workspace {
  device::Buffer buffer;
  Tensor tensor;
};

Workspace take_workspace(const device::ExecutionContext& context, std::int64_t bytes, const char* name) {
  if (bytes == 0) return {};
  const std::int64_t words = (bytes + size_of(DType::kF32) - 1) / size_of(DType::kF32);
  const Tensor shape(nullptr, DType::kF32, {words});
  Workspace workspace{.buffer = device::Buffer(context.arena, device::Scope::kWorkspace, shape, name)};
  workspace.tensor = Tensor(workspace.buffer.data(), DType::kF32, {words});
  return workspace;
}

}  // namespace

float attention_scale(std::int64_t head_size) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head_size)));
}

void run_gemm(const device::ExecutionContext& context, const device::Gemm& gemm) {
  device::Operators& operators = context.operators;
  const Workspace workspace = take_workspace(context, operators.gemm_workspace_bytes(gemm), "gemm workspace");
  operators.gemm(context.stream, gemm, workspace.tensor);
}

void run_attention_forward(const device::ExecutionContext& context,
                           const device::AttentionForward& attention) {
  device::Operators& operators = context.operators;
  const Workspace workspace = take_workspace(context, operators.attention_forward_workspace_bytes(attention),
                                             "attention forward workspace");
  operators.attention_forward(context.stream, attention, workspace.tensor);
}

void run_attention_backward(const device::ExecutionContext& context,
                            const device::AttentionBackward& attention) {
  device::Operators& operators = context.operators;
  const Workspace workspace = take_workspace(context, operators.attention_backward_workspace_bytes(attention),
                                             "attention backward workspace");
  operators.attention_backward(context.stream, attention, workspace.tensor);
}

void run_rms_norm_backward(const device::ExecutionContext& context, Tensor dy, Tensor x, Tensor weight,
                           Tensor rstd, Tensor residual_gradient, Tensor dx, Tensor d_weight) {
  device::Operators& operators = context.operators;
  const Workspace workspace = take_workspace(
      context, operators.rms_norm_backward_workspace_bytes(x.dim(0), x.dim(1)), "norm backward workspace");
  operators.rms_norm_backward(context.stream, dy, x, weight, rstd, residual_gradient, dx, d_weight,
                              workspace.tensor);
}

}  // namespace slimpipe::model
