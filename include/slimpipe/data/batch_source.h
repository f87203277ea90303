#pragma once
// From a step number to token views, independent of how the run is laid out.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slimpipe/data/token_file.h"

namespace slimpipe::data {

/// One training sample = one microbatch: inputs[t] predicts targets[t]. A negative target is ignored
/// (past the end of the data).
struct Sample {
  std::vector<std::int32_t> inputs;   ///< [S]
  std::vector<std::int32_t> targets;  ///< [S]
  std::int64_t valid_tokens = 0;      ///< the first so many are of the file, the rest is padding
};

struct BatchSourceOptions {
  std::int64_t sequence_length = 0;  ///< S
  std::int64_t shuffle_window = 1;   ///< samples shuffled together; 1: file order
  std::uint64_t seed = 0;
  std::int64_t first_token = 0;  ///< the range of the file that is used
  std::int64_t end_token = -1;   ///< -1: the file's end
};

/// All that decides which sample stands at which cursor: two sources with the same identity give the same
/// samples for ever.
struct StreamIdentity {
  std::int64_t file_tokens = 0;
  std::uint64_t file_fingerprint = 0;  ///< see TokenFile::fingerprint; its path does not matter
  std::int64_t first_token = 0;        ///< the range of the file that is used
  std::int64_t end_token = 0;
  std::int64_t sequence_length = 0;
  std::int64_t shuffle_window = 1;
  std::uint64_t seed = 0;
  bool operator==(const StreamIdentity&) const = default;

  [[nodiscard]] std::int64_t samples_per_epoch() const;
  /// Samples that are really shuffled together: at most an epoch.
  [[nodiscard]] std::int64_t shuffled_together() const;
};

/// Sample i of the file is tokens [i·S, i·S + S] of the range (one token shared with the next sample, as
/// its target); the last one may be padded with ignored targets. Epochs go on without end; within each
/// window of an epoch the order is a permutation keyed by (seed, epoch, window). The cursor is one
/// integer: the number of samples consumed so far, whatever the layout. There is no state: any thread may
/// ask for any cursor, in any order. Padding inputs are token 0.
class BatchSource {
 public:
  /// Throws InputError where the range holds no target, or lies outside the file.
  BatchSource(std::shared_ptr<const TokenFile> file, const BatchSourceOptions& options);

  [[nodiscard]] std::int64_t samples_per_epoch() const { return samples_; }
  /// Reads a little of the file.
  [[nodiscard]] StreamIdentity identity() const;
  /// The sample at `cursor` (>= 0).
  [[nodiscard]] Sample sample(std::int64_t cursor) const;
  /// Valid targets of the samples [cursor, cursor + count): known without reading tokens.
  [[nodiscard]] std::int64_t valid_tokens(std::int64_t cursor, std::int64_t count) const;

 private:
  [[nodiscard]] std::int64_t file_sample(std::int64_t cursor) const;
  [[nodiscard]] std::int64_t valid_tokens_of(std::int64_t file_sample) const;
  std::shared_ptr<const TokenFile> file_;
  BatchSourceOptions options_;
  std::int64_t samples_ = 0;
  std::int64_t shuffled_together_ = 1;
};

/// Splits a file's tokens in a training range [0, train_end) and a validation tail [train_end, tokens) of
/// whole samples: about `fraction` of all samples, at least one; none where `fraction` is 0. Throws
/// InputError where either part would not hold a whole sample, with the numbers.
struct Split {
  std::int64_t train_end = 0;
};
[[nodiscard]] Split split_for_validation(const TokenFile& file, std::int64_t sequence_length,
                                         double fraction);

}  // namespace slimpipe::data
