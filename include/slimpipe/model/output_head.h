#pragma once
// The end of the model: final norm, output layer and cross-entropy, forward and backward in one go over
// chunks of tokens, so that no more than a chunk of logits ever exists.

#include <cstdint>
#include <optional>

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/execution_context.h"
#include "slimpipe/model/slice.h"

namespace slimpipe::model {

struct HeadTensors {
  Tensor norm;    ///< [H]
  Tensor output;  ///< [V, H]
};

/// What the backward of a slice's loss writes.
struct HeadBackward {
  Tensor d_x;                ///< = [T, H] compute
  HeadTensors gradients;     ///< += fp32
  float gradient_scale = 0;  ///< on all of them: 1 / valid tokens of the global batch
};

class OutputHead {
 public:
  OutputHead(const config::ModelConfig& model, DType compute, HeadTensors weights);

  /// loss_sum += [1] fp64, sum of the losses of the slice's valid targets, and where asked for the backward.
  /// x [T, H] compute, targets [T] int32. Nothing is computed for the slice's padding, where d_x = 0.
  void loss(const device::ExecutionContext& context, const SliceRef& slice, Tensor x, Tensor targets,
            Tensor loss_sum, const std::optional<HeadBackward>& backward = {}) const;
  /// Tokens of one chunk of logits: a function of the vocabulary alone, so results do not depend on layout.
  [[nodiscard]] std::int64_t chunk_tokens() const;

 private:
  config::ModelConfig model_;
  DType compute_;
  HeadTensors weights_;
};

}  // namespace slimpipe::model
