#pragma once
// Where a resumed run goes on, found and checked before anything of the run is made or written.

#include <filesystem>

#include "slimpipe/config/run_config.h"
#include "slimpipe/data/batch_source.h"
#include "slimpipe/train/checkpoint.h"

namespace slimpipe::train {

struct ResumePoint {
  std::filesystem::path checkpoint;
  TrainingState state;
};

/// The newest checkpoint in `checkpoints`, which is of this run's model and of its stream of samples. Throws
/// InputError where there is none, where it is damaged, or where it is of another model or stream, naming
/// each difference. `warn`: say so where the checkpoint does not record its model's settings or its stream.
[[nodiscard]] ResumePoint find_resume_point(const std::filesystem::path& checkpoints,
                                            const config::ModelConfig& model,
                                            const data::StreamIdentity& stream, bool warn);

}  // namespace slimpipe::train
