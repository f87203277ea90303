#pragma once
// What a layer may know of a slice. Nothing else in the model knows where a slice starts.

#include <algorithm>
#include <cstdint>
#include <span>

#include "slimpipe/core/tensor.h"

namespace slimpipe::model {

/// The whole sequence a slice is cut from.
struct SequenceView {
  std::int64_t length = 0;        ///< S, padding included
  std::int64_t valid_tokens = 0;  ///< the first so many are data, the rest is padding with ignored targets
  /// Ascending positions; empty: one document. Whoever makes the view owns them, for as long as it is in use:
  /// layers read them during their calls and keep no copy.
  std::span<const std::int64_t> document_starts;
};

/// One slice: row t of every activation is the token at position first_position + t.
struct SliceRef {
  int microbatch = 0;
  int slice = 0;
  std::int64_t first_position = 0;
  std::int64_t tokens = 0;  ///< T
  SequenceView sequence;
  Tensor rope_cos;  ///< [T, D/2] fp32
  Tensor rope_sin;  ///< [T, D/2] fp32

  /// Rows before the sequence's padding, 0 to T.
  [[nodiscard]] std::int64_t valid_tokens() const {
    return std::clamp<std::int64_t>(sequence.valid_tokens - first_position, 0, tokens);
  }
};

}  // namespace slimpipe::model
