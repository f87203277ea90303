#pragma once
// What a layer may know of a slice. Nothing else in the model knows where a slice starts.

#include <cstdint>
#include <span>

#include "slimpipe/core/tensor.h"

namespace slimpipe::model {

/// The whole sequence a slice is cut from.
struct SequenceView {
  std::int64_t length = 0;
  std::span<const std::int64_t> document_starts;  ///< ascending positions; empty: one document
};

/// One slice: rows of every activation are its tokens.
struct SliceRef {
  int microbatch = 0;
  int slice = 0;
  std::int64_t first_position = 0;
  std::int64_t tokens = 0;  ///< T
  SequenceView sequence;
  Tensor rope_cos;  ///< [T, D/2] fp32
  Tensor rope_sin;  ///< [T, D/2] fp32
};

}  // namespace slimpipe::model
