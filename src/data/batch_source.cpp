#include "slimpipe/data/batch_source.h"

#include <algorithm>
#include <utility>

#include "slimpipe/core/check.h"
#include "slimpipe/core/random.h"

#include "data/permutation.h"

namespace slimpipe::data {
namespace {

constexpr std::int32_t kPaddingInput = 0;
constexpr std::int32_t kIgnoredTarget = -1;

/// Names one window's order; chained, so that no two of (seed, epoch, window) share a key by construction
/// of the counter.
std::uint64_t window_key(std::uint64_t seed, std::int64_t epoch, std::int64_t window) {
  const RandomStream stream{RandomStream::Use::kSampleOrder, 0};
  const std::uint64_t epoch_key = random_u64(seed, stream, static_cast<std::uint64_t>(epoch));
  return random_u64(epoch_key, stream, static_cast<std::uint64_t>(window));
}

/// Each token but the range's first is a target once.
std::int64_t samples_of(std::int64_t range_tokens, std::int64_t sequence_length) {
  return (range_tokens - 2) / sequence_length + 1;
}

}  // namespace

std::int64_t StreamIdentity::samples_per_epoch() const {
  return samples_of(end_token - first_token, sequence_length);
}

std::int64_t StreamIdentity::shuffled_together() const {
  return std::min(shuffle_window, samples_per_epoch());
}

BatchSource::BatchSource(std::shared_ptr<const TokenFile> file, const BatchSourceOptions& options)
    : file_(std::move(file)), options_(options) {
  SLIMPIPE_CHECK(options_.sequence_length >= 1, "sequence length {}", options_.sequence_length);
  SLIMPIPE_CHECK(options_.shuffle_window >= 1, "shuffle window {}", options_.shuffle_window);
  if (options_.end_token < 0) options_.end_token = file_->tokens();
  if (options_.first_token < 0 || options_.end_token > file_->tokens() ||
      options_.end_token - options_.first_token < 2) {
    throw_input_error(
        "token file {} has {} tokens; the range [{}, {}) must lie inside it and hold at least 2 tokens: "
        "prepare more text",
        file_->path().string(), file_->tokens(), options_.first_token, options_.end_token);
  }
  samples_ = samples_of(options_.end_token - options_.first_token, options_.sequence_length);
  shuffled_together_ = std::min(options_.shuffle_window, samples_);
}

StreamIdentity BatchSource::identity() const {
  return {.file_tokens = file_->tokens(),
          .file_fingerprint = file_->fingerprint(),
          .first_token = options_.first_token,
          .end_token = options_.end_token,
          .sequence_length = options_.sequence_length,
          .shuffle_window = options_.shuffle_window,
          .seed = options_.seed};
}

Sample BatchSource::sample(std::int64_t cursor) const {
  const std::int64_t index = file_sample(cursor);
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const auto valid = static_cast<std::size_t>(valid_tokens_of(index));
  const std::int64_t begin = options_.first_token + index * options_.sequence_length;

  std::vector<std::int32_t> tokens(valid + 1);
  file_->read(begin, tokens);
  Sample sample{.inputs = {}, .targets = {}, .valid_tokens = static_cast<std::int64_t>(valid)};
  sample.targets.assign(tokens.begin() + 1, tokens.end());
  sample.targets.resize(length, kIgnoredTarget);
  sample.inputs = std::move(tokens);
  sample.inputs.resize(length, kPaddingInput);  // drops the token that is only a target
  return sample;
}

std::int64_t BatchSource::valid_tokens(std::int64_t cursor, std::int64_t count) const {
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += valid_tokens_of(file_sample(cursor + i));
  return total;
}

std::int64_t BatchSource::file_sample(std::int64_t cursor) const {
  SLIMPIPE_CHECK(cursor >= 0, "cursor {}", cursor);
  const std::int64_t epoch = cursor / samples_;
  const std::int64_t position = cursor % samples_;
  const std::int64_t window = position / shuffled_together_;
  const std::int64_t first = window * shuffled_together_;
  const std::int64_t size = std::min(shuffled_together_, samples_ - first);
  if (size == 1) return position;
  return first + permute(window_key(options_.seed, epoch, window), size, position - first);
}

std::int64_t BatchSource::valid_tokens_of(std::int64_t file_sample) const {
  const std::int64_t targets = options_.end_token - options_.first_token - 1;
  return std::min(options_.sequence_length, targets - file_sample * options_.sequence_length);
}

Split split_for_validation(const TokenFile& file, std::int64_t sequence_length, double fraction) {
  SLIMPIPE_CHECK(sequence_length >= 1, "sequence length {}", sequence_length);
  SLIMPIPE_CHECK(fraction >= 0 && fraction < 1, "validation fraction {}", fraction);
  if (fraction == 0) return {.train_end = file.tokens()};
  const std::int64_t samples = (file.tokens() - 1) / sequence_length;
  const auto wanted = static_cast<std::int64_t>(fraction * static_cast<double>(samples));
  const std::int64_t held_out = std::max<std::int64_t>(wanted, 1);
  // A range of whole samples has one token more than its inputs: the last one's target.
  const std::int64_t train_end = file.tokens() - (held_out * sequence_length + 1);
  if (train_end < sequence_length + 1) {
    throw_input_error(
        "token file {} has {} tokens, too few to hold out {} validation samples of {} tokens and keep one to "
        "train on ({} tokens at least): prepare more text, shorten the sequence or hold out no validation "
        "data",
        file.path().string(), file.tokens(), held_out, sequence_length, (held_out + 1) * sequence_length + 2);
  }
  return {.train_end = train_end};
}

}  // namespace slimpipe::data
