#include "slimpipe/runtime/placement.h"

#include <numeric>
#include <set>

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

std::vector<int> even_layers(std::int64_t layers, int stages) {
  SLIMPIPE_CHECK(layers > 0 && layers % stages == 0, "{} layers, {} stages", layers, stages);
  return std::vector<int>(static_cast<std::size_t>(stages), static_cast<int>(layers / stages));
}

int layers_before(const std::vector<int>& stage_layers, int stage) {
  return std::accumulate(stage_layers.begin(), stage_layers.begin() + stage, 0);
}

std::vector<ChunkPlacement> place_chunks(const schedule::Schedule& schedule, int rank,
                                         const std::vector<int>& stage_layers) {
  const int stages = schedule.spec.stages();
  std::vector<ChunkPlacement> chunks;
  for (const int stage : schedule.stage_of[rank]) {
    chunks.push_back({stage, stages, layers_before(stage_layers, stage), stage_layers.at(stage)});
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
