#include "slimpipe/train/resume.h"

#include <fmt/ranges.h>

#include "slimpipe/config/load.h"
#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"
#include "slimpipe/train/run_data.h"

namespace slimpipe::train {
namespace {

namespace fs = std::filesystem;

using Settings = std::map<std::string, std::string>;

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

/// "model.heads: 4 in the checkpoint, 2 now", a line for each setting that differs. What a checkpoint does
/// not name its writer did not have, which is to say that it had the default.
std::vector<std::string> differences(Settings checkpoint, const Settings& now) {
  checkpoint.merge(config::identity_of({}));
  std::vector<std::string> lines;
  for (const auto& [key, there] : checkpoint) {
    const auto here = now.find(key);
    if (here == now.end()) {
      lines.push_back(fmt::format("{}: {} in the checkpoint, not known to this build", key, there));
    } else if (here->second != there) {
      lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", key, there, here->second));
    }
  }
  return lines;
}

/// Heads, rotary embedding and epsilon leave no trace in the shapes of tensors.
void check_same_settings(const TrainingState& state, const config::ModelConfig& model,
                         const fs::path& checkpoint, bool warn) {
  if (state.model.empty()) {
    if (warn) {
      log::warning(
          "{} does not record the settings of its model: make sure that the section model is that of the run "
          "it is from",
          checkpoint.string());
    }
    return;
  }
  const std::vector<std::string> lines = differences(state.model, config::identity_of(model));
  if (lines.empty()) return;
  throw_input_error(
      "--resume: {} is of a model with other settings:\n  {}\nSet what differs back to the checkpoint's "
      "values, or start a new run in another --run-dir",
      checkpoint.string(), fmt::join(lines, "\n  "));
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
  check_same_settings(reader.manifest().state, model, *newest, warn);
  check_same_model(reader, model, *newest);
  check_same_stream(reader.manifest().state, stream, *newest, warn);
  return {.checkpoint = *newest, .state = reader.manifest().state};
}

}  // namespace slimpipe::train
