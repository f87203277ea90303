#include "slimpipe/model/output_head.h"

#include <cmath>

#include "slimpipe/core/random.h"

#include "support/catch.h"
#include "support/reference_device.h"

namespace slimpipe::model {
namespace {

using device::Scope;

constexpr std::int64_t kHidden = 3;
constexpr std::int64_t kVocabulary = 5;

config::ModelConfig head_model(std::int64_t vocabulary = kVocabulary) {
  return {.layers = 1,
          .hidden = kHidden,
          .heads = 1,
          .kv_heads = 1,
          .head_size = 2,
          .ffn = 1,
          .vocabulary = vocabulary};
}

struct HeadRun {
  double loss = 0;
  std::vector<float> d_x;
  std::vector<float> d_norm = std::vector<float>(kHidden);
  std::vector<float> d_output = std::vector<float>(kVocabulary * kHidden);
  std::int64_t workspace_peak = 0;
};

/// The head over tokens [begin, end) of one fixed sequence whose first `valid` are not padding; gradients are
/// added to `run`.
void run_head(HeadRun& run, std::int64_t begin, std::int64_t end, bool backward = true,
              std::int64_t valid = std::int64_t{1} << 40) {
  test::ReferenceDevice device;
  const auto draw = [](std::uint32_t what, std::int64_t i) {
    return static_cast<float>(
        random_normal(9, {RandomStream::Use::kTest, what}, static_cast<std::uint64_t>(i)));
  };
  std::vector<float> norm;
  std::vector<float> output;
  std::vector<float> x;
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < kHidden; ++i) norm.push_back(1 + draw(1, i));
  for (std::int64_t i = 0; i < kVocabulary * kHidden; ++i) output.push_back(draw(2, i));
  for (std::int64_t i = begin * kHidden; i < end * kHidden; ++i) x.push_back(draw(3, i));
  for (std::int64_t i = begin; i < end; ++i) targets.push_back(static_cast<std::int32_t>(i % 6) - 1);
  std::vector<float> d_x(x.size(), 7);  // overwritten, padding included
  const std::int64_t tokens = end - begin;
  const OutputHead head(head_model(), DType::kF32,
                        {.norm = {norm.data(), DType::kF32, {kHidden}},
                         .output = {output.data(), DType::kF32, {kVocabulary, kHidden}}});
  std::optional<HeadBackward> gradients;
  if (backward) {
    gradients = {.d_x = {d_x.data(), DType::kF32, {tokens, kHidden}},
                 .gradients = {.norm = {run.d_norm.data(), DType::kF32, {kHidden}},
                               .output = {run.d_output.data(), DType::kF32, {kVocabulary, kHidden}}},
                 .gradient_scale = 0.25F};
  }
  const SliceRef slice{
      .first_position = begin, .tokens = tokens, .sequence = {.length = valid, .valid_tokens = valid}};
  head.loss(execution_context(device), slice, {x.data(), DType::kF32, {tokens, kHidden}},
            {targets.data(), DType::kI32, {tokens}}, {&run.loss, DType::kF64, {1}}, gradients);
  run.d_x.insert(run.d_x.end(), d_x.begin(), d_x.end());
  run.workspace_peak = device.arena().stats().peak[static_cast<std::size_t>(Scope::kWorkspace)];
  CHECK(device.arena().stats().total_live == 0);
}

void check_close(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).epsilon(1e-5).margin(1e-5));
}

TEST_CASE("a chunk of logits is bounded in memory and depends on the vocabulary alone", "[unit]") {
  const auto chunk = [](std::int64_t vocabulary) {
    return OutputHead(head_model(vocabulary), DType::kBF16, {}).chunk_tokens();
  };
  CHECK(chunk(256) == 2048);
  CHECK(chunk(32000) == 512);
  CHECK(chunk(128256) == 128);
  CHECK(chunk(1 << 20) == 64);
}

TEST_CASE("a slice longer than a chunk gives what its pieces give", "[unit]") {
  const std::int64_t tokens = 2048 + 71;
  HeadRun whole;
  run_head(whole, 0, tokens);
  HeadRun pieces;
  run_head(pieces, 0, 1000);
  run_head(pieces, 1000, tokens);
  CHECK(whole.loss == Approx(pieces.loss).epsilon(1e-9));
  check_close(whole.d_norm, pieces.d_norm);
  check_close(whole.d_output, pieces.d_output);
  CHECK(whole.d_x == pieces.d_x);
}

TEST_CASE("workspace stops growing at one chunk", "[unit]") {
  HeadRun one;
  run_head(one, 0, 2048);
  HeadRun two;
  run_head(two, 0, 4096);
  CHECK(two.workspace_peak == one.workspace_peak);
  HeadRun evaluation;
  run_head(evaluation, 0, 2048, false);
  CHECK(evaluation.workspace_peak < one.workspace_peak);
}

TEST_CASE("evaluation changes no gradient, and zero tokens change nothing", "[unit]") {
  HeadRun evaluation;
  run_head(evaluation, 0, 7, false);
  CHECK(evaluation.loss > 0);
  CHECK(evaluation.d_norm == std::vector<float>(kHidden));
  CHECK(evaluation.d_output == std::vector<float>(kVocabulary * kHidden));
  HeadRun none;
  run_head(none, 0, 0);
  CHECK(none.loss == 0);
  CHECK(none.d_output == std::vector<float>(kVocabulary * kHidden));
}

TEST_CASE("a row whose target is ignored has neither loss nor gradient", "[unit]") {
  HeadRun ignored;
  run_head(ignored, 6, 7);  // its target is -1
  CHECK(ignored.loss == 0);
  CHECK(ignored.d_x == std::vector<float>(kHidden));
  CHECK(ignored.d_output == std::vector<float>(kVocabulary * kHidden));
}

TEST_CASE("padding costs nothing and leaves no trace, whatever it holds", "[unit]") {
  HeadRun valid;
  run_head(valid, 0, 10);
  HeadRun padded;
  run_head(padded, 0, 16, true, 10);
  CHECK(padded.loss == valid.loss);
  CHECK(padded.d_output == valid.d_output);
  CHECK(padded.workspace_peak == valid.workspace_peak);
  valid.d_x.resize(padded.d_x.size());  // zeros
  CHECK(padded.d_x == valid.d_x);
  HeadRun padding;
  run_head(padding, 12, 16, true, 10);
  CHECK(padding.loss == 0);
  CHECK(padding.workspace_peak == 0);
  CHECK(padding.d_x == std::vector<float>(padding.d_x.size()));
}

}  // namespace
}  // namespace slimpipe::model
