#include "model/tensor_buffer.h"

#include <vector>

namespace slimpipe::model {
namespace {

std::int64_t aligned_bytes(const Tensor& shape) {
  constexpr std::int64_t kAlignment = device::Arena::kAlignment;
  return (shape.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

Tensor over(std::byte* data, const Tensor& shape) {
  const Tensor flat(data, shape.dtype(), {shape.size()});
  switch (shape.rank()) {
    case 1:
      return flat;
    case 2:
      return flat.reshape({shape.dim(0), shape.dim(1)});
    case 3:
      return flat.reshape({shape.dim(0), shape.dim(1), shape.dim(2)});
    default:
      throw_error("no placement of rank {}", shape.rank());
  }
}

}  // namespace

std::int64_t placed_bytes(const std::vector<Placement>& placements) {
  std::int64_t bytes = 0;
  for (const Placement& placement : placements) bytes += aligned_bytes(placement.shape);
  return bytes;
}

device::Buffer allocate_tensors(device::Arena& arena, device::Scope scope, const char* name,
                                const std::vector<Placement>& placements) {
  std::vector<Tensor> shapes;
  shapes.reserve(placements.size());
  for (const Placement& placement : placements) shapes.push_back(placement.shape);
  device::Buffer buffer(arena, scope, placed_bytes(placements), name, shapes);
  auto* data = static_cast<std::byte*>(buffer.data());
  for (const Placement& placement : placements) {
    placement.view = over(data, placement.shape);
    data += aligned_bytes(placement.shape);
  }
  return buffer;
}

}  // namespace slimpipe::model
