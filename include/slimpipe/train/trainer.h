#pragma once
// The training run: from a configuration and a run folder to a trained model.

#include <filesystem>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/config/load.h"

namespace slimpipe::train {

struct TrainRequest {
  config::Loaded configuration;
  std::filesystem::path run_folder;
  bool resume = false;
};

/// Runs to the configured number of steps. Every process calls it. Throws InputError for what the user can
/// mend (before anything is written), Error for a failed run, after naming its cause in the log once.
void train(const TrainRequest& request, comm::MpiSession& processes);

}  // namespace slimpipe::train
