#pragma once
// The tokens of a run: training and validation sources from the configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimpipe/config/run_config.h"
#include "slimpipe/data/batch_source.h"
#include "slimpipe/train/session.h"

namespace slimpipe::train {

class RunData {
 public:
  /// Opens the token files of `config`. Throws InputError where one is unusable, holds tokens the model has
  /// no embedding for, or is too small.
  explicit RunData(const config::RunConfig& config);

  /// The batch of `count` samples at `cursor`. `with_tokens` false: only the count of valid tokens.
  [[nodiscard]] Batch training_batch(std::int64_t cursor, int count, bool with_tokens) const;
  [[nodiscard]] bool has_validation() const { return validation_.has_value(); }
  /// Sequences of one validation; 0 where there is none.
  [[nodiscard]] int validation_samples() const { return static_cast<int>(validation_samples_); }
  /// The same samples every time, the first ones of the validation data in file order.
  [[nodiscard]] Batch validation_batch(bool with_tokens) const;
  [[nodiscard]] std::int64_t samples_per_epoch() const { return train_->samples_per_epoch(); }
  /// What the training samples and their order depend on.
  [[nodiscard]] const data::StreamIdentity& stream() const { return stream_; }
  /// Of the training and the validation data, a line each: equal where their tokens are.
  [[nodiscard]] std::string identity_text() const;

 private:
  static Batch make_batch(const data::BatchSource& source, std::int64_t cursor, std::int64_t count,
                          bool with_tokens);
  std::optional<data::BatchSource> train_;
  std::optional<data::BatchSource> validation_;
  std::int64_t validation_samples_ = 0;
  data::StreamIdentity stream_;
};

/// Where samples or their order differ between two streams: a line for each setting that makes the
/// difference, with the checkpoint's value and the one of now. Empty where both are the same stream.
[[nodiscard]] std::vector<std::string> stream_differences(const data::StreamIdentity& checkpoint,
                                                          const data::StreamIdentity& now);

}  // namespace slimpipe::train
