#include "slimpipe/runtime/placement.h"

#include <set>

namespace slimpipe::runtime {

std::vector<ChunkPlacement> place_chunks(const schedule::Schedule& schedule, int rank, int layers) {
  const int stages = schedule.spec.stages();
  std::vector<ChunkPlacement> chunks;
  for (const int stage : schedule.stage_of[rank]) {
    chunks.push_back({stage, stages, stage * (layers / stages), layers / stages});
  }
  return chunks;
}

std::vector<std::size_t> parameters_of(const model::ParameterTable& table,
                                       const std::vector<ChunkPlacement>& chunks) {
  std::set<std::size_t> indices;
  for (const ChunkPlacement& chunk : chunks) {
    const auto entries = table.stage_entries(chunk.first_layer, chunk.layers, chunk.first(), chunk.last());
    indices.insert(entries.begin(), entries.end());
  }
  return {indices.begin(), indices.end()};
}

}  // namespace slimpipe::runtime
