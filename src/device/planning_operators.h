#pragma once
// Operators of a device that only plans: as much workspace as another's, and no work.

#include <cstdint>

#include "slimpipe/device/operators.h"

namespace slimpipe::device {

class PlanningOperators final : public Operators {
 public:
  /// `sizes` outlives it.
  explicit PlanningOperators(Operators& sizes) : sizes_(sizes) {}

  std::int64_t gemm_workspace_bytes(const Gemm& gemm) override { return sizes_.gemm_workspace_bytes(gemm); }
  std::int64_t attention_forward_workspace_bytes(const AttentionForward& args) override {
    return sizes_.attention_forward_workspace_bytes(args);
  }
  std::int64_t attention_backward_workspace_bytes(const AttentionBackward& args) override {
    return sizes_.attention_backward_workspace_bytes(args);
  }
  std::int64_t rms_norm_backward_workspace_bytes(std::int64_t tokens, std::int64_t hidden) override {
    return sizes_.rms_norm_backward_workspace_bytes(tokens, hidden);
  }

  void gemm(Stream&, const Gemm&, Tensor) override {}
  void attention_forward(Stream&, const AttentionForward&, Tensor) override {}
  void merge_attention(Stream&, Tensor, Tensor, Tensor, Tensor) override {}
  void attention_delta(Stream&, Tensor, Tensor, Tensor) override {}
  void attention_backward(Stream&, const AttentionBackward&, Tensor) override {}
  void rms_norm_forward(Stream&, Tensor, Tensor, float, Tensor, Tensor) override {}
  void add_rms_norm_forward(Stream&, Tensor, Tensor, Tensor, float, Tensor, Tensor, Tensor) override {}
  void rms_norm_backward(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void rope_table(Stream&, Tensor, std::int64_t, float, Tensor, Tensor) override {}
  void rope_forward(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void rope_backward(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void swiglu_forward(Stream&, Tensor, Tensor) override {}
  void swiglu_backward(Stream&, Tensor, Tensor, Tensor) override {}
  void embedding_forward(Stream&, Tensor, Tensor, Tensor) override {}
  void embedding_backward(Stream&, Tensor, Tensor, Tensor) override {}
  void cross_entropy(Stream&, Tensor, Tensor, float, Tensor, Tensor) override {}
  void adamw(Stream&, const AdamW&) override {}
  void sum_of_squares(Stream&, Tensor, Tensor) override {}
  void add(Stream&, Tensor, Tensor, Tensor) override {}
  void copy(Stream&, Tensor, Tensor) override {}
  void zero(Stream&, Tensor) override {}

 private:
  Operators& sizes_;
};

}  // namespace slimpipe::device
