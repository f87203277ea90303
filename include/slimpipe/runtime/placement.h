#pragma once
// Which layers and parameters a device holds.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "slimpipe/model/parameters.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::runtime {

/// Which layers a chunk of a device holds.
struct ChunkPlacement {
  int stage = 0;
  int stages = 1;
  int first_layer = 0;
  int layers = 1;
  [[nodiscard]] bool first() const { return stage == 0; }
  [[nodiscard]] bool last() const { return stage == stages - 1; }
};

/// `layers`, a multiple of `stages`, shared evenly.
[[nodiscard]] std::vector<int> even_layers(std::int64_t layers, int stages);
/// The layers of all stages before `stage`.
[[nodiscard]] int layers_before(const std::vector<int>& stage_layers, int stage);
/// The chunks of a pipeline rank, in chunk order. `stage_layers`: layers of each stage.
[[nodiscard]] std::vector<ChunkPlacement> place_chunks(const schedule::Schedule& schedule, int rank,
                                                       const std::vector<int>& stage_layers);
/// Table indices of the parameters that the chunks need, ascending, without repetition.
[[nodiscard]] std::vector<std::size_t> parameters_of(const model::ParameterTable& table,
                                                     const std::vector<ChunkPlacement>& chunks);

}  // namespace slimpipe::runtime
