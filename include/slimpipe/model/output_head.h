#pragma once
// The end of the model: final norm, output layer and cross-entropy, forward and backward in one go over
// chunks of tokens, so that no more than a chunk of logits ever exists.

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/execution_context.h"
#include "slimpipe/model/slice.h"

namespace slimpipe::model {

struct HeadTensors {
  Tensor norm;    ///< [H]
  Tensor output;  ///< [V, H]
};

class OutputHead {
 public:
  /// Gradients may be empty tensors where the head only evaluates.
  OutputHead(const config::ModelConfig& model, DType compute, HeadTensors weights, HeadTensors gradients);

  /// loss_sum += [1] fp64, sum of the losses of the slice's valid targets. Where d_x is not empty also
  /// d_x = [T, H] compute and the gradients += ..., all scaled by gradient_scale (1 / valid tokens of the
  /// global batch). x [T, H] compute, targets [T] int32. Nothing is computed for the slice's padding, where
  /// d_x = 0.
  void loss(const device::ExecutionContext& context, const SliceRef& slice, Tensor x, Tensor targets,
            float gradient_scale, Tensor loss_sum, Tensor d_x) const;
  /// Tokens of one chunk of logits: a function of the vocabulary alone, so results do not depend on layout.
  [[nodiscard]] std::int64_t chunk_tokens() const;

 private:
  config::ModelConfig model_;
  DType compute_;
  HeadTensors weights_;
  HeadTensors gradients_;
};

}  // namespace slimpipe::model
