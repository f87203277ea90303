#pragma once
// Which layers and parameters a device holds.

#include <cstddef>
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

/// The chunks of a pipeline rank, in chunk order; layers are shared evenly by the stages.
[[nodiscard]] std::vector<ChunkPlacement> place_chunks(const schedule::Schedule& schedule, int rank,
                                                       int layers);
/// Table indices of the parameters that the chunks need, ascending, without repetition.
[[nodiscard]] std::vector<std::size_t> parameters_of(const model::ParameterTable& table,
                                                     const std::vector<ChunkPlacement>& chunks);

}  // namespace slimpipe::runtime
