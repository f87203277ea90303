#pragma once
// The collectives a layer asks for. At group size 1, the only size there is so far, each is the identity;
// layers already call them where they belong, so that tensor parallelism changes no layer.

#include "slimpipe/core/tensor.h"
#include "slimpipe/device/stream.h"

namespace slimpipe::model {

class ParallelContext {
 public:
  virtual ~ParallelContext() = default;
  [[nodiscard]] virtual int tensor_size() const { return 1; }
  /// Sums partial results of a product whose input features are sharded. [T, H] compute.
  virtual void reduce_tensor_partials(device::Stream&, Tensor) {}
};

}  // namespace slimpipe::model
