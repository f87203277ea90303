#pragma once
// Several tensors in one arena allocation.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "slimpipe/core/tensor.h"
#include "slimpipe/device/arena.h"

namespace slimpipe::model {

/// A tensor to place: `view` receives the tensor of `shape`'s type and dimensions.
struct Placement {
  Tensor& view;
  Tensor shape;  ///< over no memory, from shape_of
};

[[nodiscard]] inline Tensor shape_of(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {nullptr, dtype, dims};
}

/// Allocates one buffer and places the tensors in it in order, each at a multiple of Arena::kAlignment.
[[nodiscard]] device::Buffer allocate_tensors(device::Arena& arena, device::Scope scope, const char* name,
                                              const std::vector<Placement>& placements);
/// Bytes of that buffer.
[[nodiscard]] std::int64_t placed_bytes(const std::vector<Placement>& placements);

}  // namespace slimpipe::model
