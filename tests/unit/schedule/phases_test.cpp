#include "slimpipe/schedule/phases.h"

#include <set>

#include "slimpipe/core/check.h"

#include "support/catch.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

constexpr Phase kAll[] = {Phase::kReceiveActivation,
                          Phase::kEmbed,
                          Phase::kPreAttention,
                          Phase::kAttention,
                          Phase::kPostAttention,
                          Phase::kLoss,
                          Phase::kSendActivation,
                          Phase::kReceiveGradient,
                          Phase::kPostAttentionBackwardInput,
                          Phase::kAttentionBackward,
                          Phase::kPreAttentionBackwardInput,
                          Phase::kBackwardWeight,
                          Phase::kEmbedBackward,
                          Phase::kSendGradient,
                          Phase::kReleaseSlice,
                          Phase::kTakeActivation,
                          Phase::kTakeGradient,
                          Phase::kGatherKeys,
                          Phase::kSendKeys,
                          Phase::kGatherQuery,
                          Phase::kSendQuery,
                          Phase::kReceiveKeys,
                          Phase::kReceiveQuery,
                          Phase::kHelpAttention,
                          Phase::kHelpAttentionBackward,
                          Phase::kSendResult,
                          Phase::kReceiveResult,
                          Phase::kMergeAttention,
                          Phase::kMergeGradients,
                          Phase::kCombineTiedGradients};

constexpr ChunkShape kFirst{.stage = 0, .stages = 3, .layers = 2};
constexpr ChunkShape kMiddle{.stage = 1, .stages = 3, .layers = 2};
constexpr ChunkShape kLast{.stage = 2, .stages = 3, .layers = 2};
constexpr ChunkShape kOnly{.stage = 0, .stages = 1, .layers = 1};

std::vector<LayerStep> steps_of(ActionKind kind, const ChunkShape& shape, int slice = 0,
                                bool training = true) {
  return expand({.kind = kind, .slice = slice}, shape, 4, training);
}

}  // namespace

TEST_CASE("phases have names of their own", "[unit]") {
  std::set<std::string_view> names;
  for (const auto phase : kAll) names.insert(name_of(phase));
  REQUIRE(names.size() == std::size(kAll));
  REQUIRE_THROWS_AS(name_of(static_cast<Phase>(99)), Error);
}

TEST_CASE("sends and receives are the only communication", "[unit]") {
  const std::set<Phase> communication{
      Phase::kReceiveActivation, Phase::kSendActivation, Phase::kReceiveGradient, Phase::kSendGradient,
      Phase::kSendKeys,          Phase::kReceiveKeys,    Phase::kSendQuery,       Phase::kReceiveQuery,
      Phase::kSendResult,        Phase::kReceiveResult};
  for (const auto phase : kAll)
    REQUIRE((is_receive(phase) || is_send(phase)) == communication.contains(phase));
}

TEST_CASE("a forward embeds or receives, runs its layers upwards, sends or takes the loss", "[unit]") {
  using enum Phase;
  const std::vector<LayerStep> layers{{kPreAttention, 0}, {kAttention, 0}, {kPostAttention, 0},
                                      {kPreAttention, 1}, {kAttention, 1}, {kPostAttention, 1}};
  const auto between = [&](Phase first, Phase last) {
    auto steps = layers;
    steps.insert(steps.begin(), {first});
    steps.push_back({last});
    return steps;
  };
  REQUIRE(steps_of(ActionKind::kForward, kFirst) == between(kEmbed, kSendActivation));
  REQUIRE(steps_of(ActionKind::kForward, kMiddle) == between(kReceiveActivation, kSendActivation));
  REQUIRE(steps_of(ActionKind::kForward, kLast) == between(kReceiveActivation, kLoss));
  REQUIRE(
      steps_of(ActionKind::kForward, kOnly) ==
      std::vector<LayerStep>{{kEmbed}, {kPreAttention, 0}, {kAttention, 0}, {kPostAttention, 0}, {kLoss}});
}

TEST_CASE("a backward runs its layers downwards with their weights and releases the slice", "[unit]") {
  using enum Phase;
  const std::vector<LayerStep> layers{{kPostAttentionBackwardInput, 1}, {kAttentionBackward, 1},
                                      {kPreAttentionBackwardInput, 1},  {kBackwardWeight, 1},
                                      {kPostAttentionBackwardInput, 0}, {kAttentionBackward, 0},
                                      {kPreAttentionBackwardInput, 0},  {kBackwardWeight, 0}};
  auto middle = layers;
  middle.insert(middle.begin(), {kReceiveGradient});
  middle.push_back({kSendGradient});
  middle.push_back({kReleaseSlice});
  REQUIRE(steps_of(ActionKind::kBackward, kMiddle) == middle);
  auto last = layers;
  last.push_back({kSendGradient});
  last.push_back({kReleaseSlice});
  REQUIRE(steps_of(ActionKind::kBackward, kLast) == last);
  auto first = layers;
  first.insert(first.begin(), {kReceiveGradient});
  first.push_back({kEmbedBackward});
  first.push_back({kReleaseSlice});
  REQUIRE(steps_of(ActionKind::kBackward, kFirst) == first);
}

TEST_CASE("the two parts of a split backward are the whole one, each step once", "[unit]") {
  for (const auto& shape : {kFirst, kMiddle, kLast, kOnly}) {
    const auto input = steps_of(ActionKind::kBackwardInput, shape);
    const auto weight = steps_of(ActionKind::kBackwardWeight, shape);
    std::vector<LayerStep> whole_input;
    std::vector<LayerStep> whole_weight;
    for (const auto& step : steps_of(ActionKind::kBackward, shape)) {
      const bool deferred = step.phase == Phase::kBackwardWeight || step.phase == Phase::kReleaseSlice;
      (deferred ? whole_weight : whole_input).push_back(step);
    }
    REQUIRE(input == whole_input);
    REQUIRE(weight == whole_weight);
  }
}

TEST_CASE("a forward-only microbatch is released at its last slice and nowhere else", "[unit]") {
  for (int slice = 0; slice < 4; ++slice) {
    const auto evaluation = steps_of(ActionKind::kForward, kMiddle, slice, false);
    auto training = steps_of(ActionKind::kForward, kMiddle, slice, true);
    if (slice == 3) training.push_back({Phase::kReleaseSlice});
    REQUIRE(evaluation == training);
  }
  REQUIRE_THROWS_AS(steps_of(ActionKind::kBackward, kMiddle, 0, false), Error);
}

TEST_CASE("a stage outside the pipeline is refused", "[unit]") {
  REQUIRE_THROWS_AS(steps_of(ActionKind::kForward, {.stage = 3, .stages = 3}), Error);
  REQUIRE_THROWS_AS(steps_of(ActionKind::kForward, {.stage = -1, .stages = 3}), Error);
}
