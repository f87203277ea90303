#include "slimpipe/train/resume.h"

#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"
#include "slimpipe/train/run_data.h"

namespace slimpipe::train {
namespace {

namespace fs = std::filesystem;

/// Every tensor the model has, in its shape, and none besides.
void check_same_model(const CheckpointReader& reader, const config::ModelConfig& model,
                      const fs::path& checkpoint) {
  const model::ParameterTable table(model);
  const std::size_t expected = std::size(kRoles) * table.entries().size();
  if (reader.manifest().tensors.size() != expected) {
    throw_input_error(
        "{} holds {} tensors, this run's model has {}: it is a checkpoint of another model "
        "(model.layers is {}, model.tied_embeddings {})",
        checkpoint.string(), reader.manifest().tensors.size(), expected, model.layers, model.tied_embeddings);
  }
  for (const model::ParameterSpec& spec : table.entries()) {
    for (const Role role : kRoles) (void)reader.record(stored_name(spec.name, role), spec.shape);
  }
}

/// The cursor counts samples of one stream: in another it would repeat some and leave out others. Layout,
/// microbatches and learning rate are free, since the cursor does not depend on them.
void check_same_stream(const TrainingState& state, const data::StreamIdentity& stream,
                       const fs::path& checkpoint, bool warn) {
  if (!state.stream) {
    // The values may well be right, and there is no other way on for an older checkpoint.
    if (warn) {
      log::warning(
          "{} does not record the data it was trained on: make sure that data.train, data.sequence_length, "
          "data.shuffle_window, data.validation_fraction and training.seed are those of the run it is from",
          checkpoint.string());
    }
    return;
  }
  const std::vector<std::string> differences = stream_differences(*state.stream, stream);
  if (differences.empty()) return;
  throw_input_error(
      "--resume: {} was trained on other samples, or in another order, than this run asks for, so its "
      "position (sample {}) means nothing here:\n  {}\nSet what differs back to the checkpoint's values, "
      "or start a new run in another --run-dir",
      checkpoint.string(), state.cursor, fmt::join(differences, "\n  "));
}

}  // namespace

ResumePoint find_resume_point(const fs::path& checkpoints, const config::ModelConfig& model,
                              const data::StreamIdentity& stream, bool warn) {
  const auto newest = newest_checkpoint(checkpoints);
  if (!newest) {
    throw_input_error("--resume: there is no checkpoint in {}; start without --resume, in another --run-dir",
                      checkpoints.string());
  }
  const CheckpointReader reader(*newest);
  check_same_model(reader, model, *newest);
  check_same_stream(reader.manifest().state, stream, *newest, warn);
  return {.checkpoint = *newest, .state = reader.manifest().state};
}

}  // namespace slimpipe::train
