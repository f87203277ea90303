#include "slimpipe/train/run_data.h"

#include <algorithm>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::train {
namespace {

std::shared_ptr<const data::TokenFile> open_tokens(const std::string& path, const config::ModelConfig& model,
                                                   const char* key) {
  auto file = std::make_shared<const data::TokenFile>(data::TokenFile::open(path));
  if (file->vocabulary() > model.vocabulary) {
    throw_input_error(
        "{}: {} holds tokens of a vocabulary of {}, but model.vocabulary is {}: set model.vocabulary to at "
        "least {}",
        key, path, file->vocabulary(), model.vocabulary, file->vocabulary());
  }
  return file;
}

/// One sequence and the target of its last token: with less, most of every sequence would be padding.
void check_enough_tokens(const char* key, const data::BatchSource& source) {
  const data::StreamIdentity stream = source.identity();
  const std::int64_t tokens = stream.end_token - stream.first_token;
  if (tokens > stream.sequence_length) return;
  throw_input_error(
      "{}: {} tokens are less than one sequence (data.sequence_length {}, and a target for its last token): "
      "prepare more text, or shorten the sequence",
      key, tokens, stream.sequence_length);
}

/// A validation is one forward pass over all its samples.
void check_validation_size(const config::RunConfig& config, std::int64_t samples) {
  const std::int64_t of_a_sample = config.model.layers * config.schedule.slices;
  const std::int64_t most = schedule::kMaxLayerForwards / of_a_sample;
  if (samples <= most) return;
  throw_input_error(
      "training.validation_samples: {} samples × slices {} × layers {} are more than the {} a step can have: "
      "set "
      "it to {} or less",
      samples, config.schedule.slices, config.model.layers, schedule::kMaxLayerForwards, most);
}

}  // namespace

RunData::RunData(const config::RunConfig& config) {
  const config::DataConfig& data = config.data;
  data::BatchSourceOptions train{.sequence_length = data.sequence_length,
                                 .shuffle_window = data.shuffle_window,
                                 .seed = config.training.seed};
  // Validation is read in file order, always from its start.
  data::BatchSourceOptions validation{.sequence_length = data.sequence_length};
  const auto train_file = open_tokens(data.train, config.model, "data.train");
  auto validation_file = train_file;
  if (!data.validation.empty()) {
    validation_file = open_tokens(data.validation, config.model, "data.validation");
  } else if (data.validation_fraction > 0) {
    train.end_token =
        data::split_for_validation(*train_file, data.sequence_length, data.validation_fraction).train_end;
    validation.first_token = train.end_token;
  }
  train_.emplace(train_file, train);
  stream_ = train_->identity();
  check_enough_tokens("data.train", *train_);
  if (!data.validation.empty() || data.validation_fraction > 0) {
    validation_.emplace(validation_file, validation);
    check_enough_tokens(data.validation.empty() ? "data.validation_fraction" : "data.validation",
                        *validation_);
    validation_samples_ = std::min(config.training.validation_samples, validation_->samples_per_epoch());
    check_validation_size(config, validation_samples_);
  }
}

std::string RunData::identity_text() const {
  const auto line = [](const char* use, const data::StreamIdentity& stream) {
    return fmt::format("{}: {} tokens with fingerprint {:016x}, of them {} to {}\n", use, stream.file_tokens,
                       stream.file_fingerprint, stream.first_token, stream.end_token);
  };
  return line("training", stream_) + (validation_ ? line("validation", validation_->identity()) : "");
}

Batch RunData::make_batch(const data::BatchSource& source, std::int64_t cursor, std::int64_t count,
                          bool with_tokens) {
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) {
    batch.samples.push_back(with_tokens ? source.sample(cursor + i)
                                        : data::Sample{.valid_tokens = source.valid_tokens(cursor + i, 1)});
    batch.valid_tokens += batch.samples.back().valid_tokens;
  }
  return batch;
}

Batch RunData::training_batch(std::int64_t cursor, int count, bool with_tokens) const {
  return make_batch(*train_, cursor, count, with_tokens);
}

Batch RunData::validation_batch(bool with_tokens) const {
  return make_batch(*validation_, 0, validation_samples_, with_tokens);
}

std::vector<std::string> stream_differences(const data::StreamIdentity& checkpoint,
                                            const data::StreamIdentity& now) {
  std::vector<std::string> lines;
  const auto compare = [&](const char* what, const std::string& then_text, const std::string& now_text) {
    if (then_text != now_text)
      lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", what, then_text, now_text));
  };
  const auto file = [](const data::StreamIdentity& stream) {
    return fmt::format("{} tokens with fingerprint {}", stream.file_tokens,
                       io::hash_text(stream.file_fingerprint));
  };
  const auto range = [](const data::StreamIdentity& stream) {
    return fmt::format("[{}, {})", stream.first_token, stream.end_token);
  };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  compare("data.train", file(checkpoint), file(now));
  compare("data.sequence_length", number(checkpoint.sequence_length), number(now.sequence_length));
  compare("tokens to train on (data.validation_fraction, data.validation)", range(checkpoint), range(now));
  // A window beyond the epoch is the epoch.
  if (checkpoint.shuffled_together() != now.shuffled_together()) {
    compare("data.shuffle_window", number(checkpoint.shuffle_window), number(now.shuffle_window));
  }
  // The file's own order has no seed.
  if (checkpoint.shuffled_together() > 1 || now.shuffled_together() > 1) {
    compare("training.seed", number(checkpoint.seed), number(now.seed));
  }
  return lines;
}

}  // namespace slimpipe::train
