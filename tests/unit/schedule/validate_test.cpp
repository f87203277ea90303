#include "slimpipe/schedule/validate.h"

#include <algorithm>

#include "slimpipe/core/check.h"

#include "schedule/execution.h"
#include "support/catch.h"
#include "unit/schedule/hand_made.h"
#include "unit/schedule/random_specs.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

/// Whether two actions may not change places since they are of one chunk.
bool dependent(const Action& a, const Action& b) {
  if (a.chunk != b.chunk) return false;
  const bool forwards = a.kind == ActionKind::kForward && b.kind == ActionKind::kForward;
  const bool backwards = a.kind != ActionKind::kForward && b.kind != ActionKind::kForward;
  if (forwards || backwards) return true;
  return a.microbatch == b.microbatch && a.slice == b.slice;
}

Schedule split_backwards(Schedule schedule) {
  for (auto& list : schedule.devices) {
    std::vector<Action> split;
    for (auto action : list) {
      if (action.kind == ActionKind::kBackward) action.kind = ActionKind::kBackwardInput;
      split.push_back(action);
      if (action.kind == ActionKind::kForward) continue;
      action.kind = ActionKind::kBackwardWeight;
      split.push_back(action);
    }
    list = split;
  }
  return schedule;
}

using Findings = std::vector<std::string>;

/// What validate says of a sound schedule; compared with, so that a failure prints the findings.
const Findings sound;

}  // namespace

TEST_CASE("random built schedules are sound", "[unit]") {
  Dice dice(2);
  for (int round = 0; round < 150; ++round) {
    const auto spec = random_spec(dice, {.max_p = 12, .max_v = 5, .max_m = 12, .max_n = 48});
    INFO(name_of(spec.kind) << " p, v, m, n " << spec.pipeline << ' ' << spec.virtual_stages << ' '
                            << spec.microbatches << ' ' << spec.slices << " slope " << spec.warmup_slope);
    REQUIRE(validate(build(spec)) == sound);
    REQUIRE(validate(build_forward_only(spec)) == sound);
  }
}

TEST_CASE("a split backward in place of the whole one is sound", "[unit]") {
  REQUIRE(validate(split_backwards(build({.pipeline = 3, .microbatches = 3, .slices = 4}))) == sound);
}

TEST_CASE("every damaged schedule is found out", "[unit]") {
  Dice dice(3);
  for (int round = 0; round < 400; ++round) {
    auto schedule = build(random_spec(dice, {.max_p = 6, .max_v = 3, .max_m = 4, .max_n = 9}));
    if (!splits_backward(schedule.spec.kind) && dice.roll(0, 1) == 1) schedule = split_backwards(schedule);
    const auto before = format_text(schedule);
    const int device = dice.roll(0, schedule.spec.pipeline - 1);
    auto& list = schedule.devices[device];
    const int last = static_cast<int>(list.size()) - 1;
    const int first_index = dice.roll(0, last);
    const int second_index = dice.roll(0, last);
    const auto action = list[first_index];
    switch (dice.roll(0, 4)) {
      case 0: {
        const auto other = list[second_index];
        if (first_index == second_index || !dependent(action, other)) continue;
        // An input part and a weight part of different slices are free of each other in one direction.
        if (action.kind != other.kind && action.kind != ActionKind::kForward &&
            other.kind != ActionKind::kForward &&
            (action.slice != other.slice || action.microbatch != other.microbatch))
          continue;
        std::swap(list[first_index], list[second_index]);
        break;
      }
      case 1:
        list.erase(list.begin() + first_index);
        break;
      case 2:
        list.insert(list.begin() + second_index, action);
        break;
      case 3: {
        if (schedule.spec.pipeline == 1) continue;
        list.erase(list.begin() + first_index);
        auto& other = schedule.devices[(device + 1) % schedule.spec.pipeline];
        other.insert(other.begin() + dice.roll(0, static_cast<int>(other.size())), action);
        break;
      }
      default:
        list[first_index].kind =
            action.kind == ActionKind::kForward ? ActionKind::kBackward : ActionKind::kForward;
    }
    INFO("before\n" << before << "after\n" << format_text(schedule));
    REQUIRE_FALSE(validate(schedule).empty());
  }
}

TEST_CASE("actions that do not exist here are named and never read as indices", "[unit]") {
  auto schedule = build({.pipeline = 2, .microbatches = 2});
  for (const Action wrong : {Action{.chunk = 1}, Action{.chunk = -1}, Action{.microbatch = 2},
                             Action{.microbatch = -1}, Action{.slice = 1}, Action{.slice = -2147483647},
                             Action{.arg = 0}, Action{.kind = static_cast<ActionKind>(77)}}) {
    auto damaged = schedule;
    damaged.devices[1].push_back(wrong);
    REQUIRE(validate(damaged).size() == 1);
    REQUIRE(validate(damaged).front().find("does not exist here") != std::string::npos);
  }
}

TEST_CASE("wrong specs, list counts and stages are refused first", "[unit]") {
  auto schedule = build({.pipeline = 2});
  auto damaged = schedule;
  damaged.spec.slices = 0;
  REQUIRE(validate(damaged) == Findings{"slices 0: expected at least 1"});
  damaged = schedule;
  damaged.devices.pop_back();
  REQUIRE(validate(damaged) ==
          Findings{"1 action lists and 2 stage lists: expected one of each for the 2 devices"});
  damaged = schedule;
  damaged.stage_of = {{1}, {1}};
  REQUIRE(validate(damaged) == Findings{"stage 1 has more than one place"});
  damaged.stage_of = {{0}, {2}};
  REQUIRE(validate(damaged) == Findings{"device 1 holds stage 2: expected 0 to 1"});
  damaged.stage_of = {{0, 1}, {}};
  REQUIRE(validate(damaged) ==
          Findings{"device 0 holds 2 stages: expected 1", "device 1 holds 0 stages: expected 1"});
}

TEST_CASE("stages in another order are as sound", "[unit]") {
  auto schedule = build({.pipeline = 2, .microbatches = 3, .slices = 2});
  std::swap(schedule.stage_of[0], schedule.stage_of[1]);
  std::swap(schedule.devices[0], schedule.devices[1]);
  REQUIRE(validate(schedule) == sound);
}

TEST_CASE("missing and double actions are counted, the findings shortened", "[unit]") {
  auto schedule = build({.microbatches = 30});
  schedule.devices[0].erase(schedule.devices[0].begin(), schedule.devices[0].begin() + 2);
  REQUIRE(
      validate(schedule) ==
      Findings{
          "device 0: chunk 0, microbatch 0, slice 0 has 0 forwards, 0 backwards for inputs, 0 for weights: "
          "expected 1, 1, 1"});
  schedule.devices[0].clear();
  const auto found = validate(schedule);
  REQUIRE(found.size() == 21);
  REQUIRE(found.back() == "and 10 more");
}

TEST_CASE("a backward in a forward-only schedule, or none in a training one, is found", "[unit]") {
  auto schedule = build({});
  schedule.training = false;
  REQUIRE(
      validate(schedule) ==
      Findings{
          "device 0: chunk 0, microbatch 0, slice 0 has 1 forwards, 1 backwards for inputs, 1 for weights: "
          "expected 1, 0, 0"});
  schedule = build_forward_only({});
  schedule.training = true;
  REQUIRE(validate(schedule).size() == 1);
}

TEST_CASE("wrong orders say what belongs there", "[unit]") {
  const Spec spec{.microbatches = 2, .slices = 2};
  const auto finding = [&](const std::string& list) { return validate(with_lists(spec, "0: " + list)); };
  CHECK(finding("F0.0.1 F0.0.0 B0.0.1 B0.0.0 F0.1.0 F0.1.1 B0.1.1 B0.1.0") ==
        Findings{"device 0: F0.0.1 (action 0) is out of order: the next forward is microbatch 0, slice 0"});
  CHECK(finding("F0.0.0 B0.0.1 F0.0.1 B0.0.0 F0.1.0 F0.1.1 B0.1.1 B0.1.0") ==
        Findings{"device 0: B0.0.1 (action 1) is out of order: its forward comes later"});
  CHECK(finding("F0.0.0 F0.0.1 B0.0.0 B0.0.1 F0.1.0 F0.1.1 B0.1.1 B0.1.0") ==
        Findings{"device 0: B0.0.0 (action 2) is out of order: the next backward is microbatch 0, slice 1"});
  CHECK(finding("F0.0.0 F0.0.1 F0.1.0 F0.1.1 B0.1.1 B0.1.0 B0.0.1 B0.0.0") ==
        Findings{"device 0: B0.1.1 (action 4) is out of order: the next backward is microbatch 0, slice 1"});
  CHECK(finding("F0.0.0 F0.0.1 W0.0.1 I0.0.1 B0.0.0 F0.1.0 F0.1.1 B0.1.1 B0.1.0") ==
        Findings{"device 0: W0.0.1 (action 2) is out of order: its backward for inputs comes later"});
  CHECK(finding("F0.0.0 F0.0.1 I0.0.1 I0.0.0 W0.0.0 W0.0.1 F0.1.0 F0.1.1 B0.1.1 B0.1.0") ==
        Findings{"device 0: W0.0.0 (action 4) is out of order: the next backward is microbatch 0, slice 1"});
  CHECK(finding("F0.0.0 F0.0.1 F0.1.0 F0.1.1 I0.0.1 I0.0.0 W0.0.1 W0.0.0 B0.1.1 B0.1.0") == sound);
  CHECK(finding("F0.1.0 F0.1.1 F0.0.0 F0.0.1 I0.0.1 I0.0.0 W0.0.1 W0.0.0 B0.1.1 B0.1.0") ==
        Findings{"device 0: F0.1.0 (action 0) is out of order: the next forward is microbatch 0, slice 0"});
}

TEST_CASE("what a stage takes of another on its device has been left there before", "[unit]") {
  const Spec spec{.virtual_stages = 2, .slices = 2};
  const auto finding = [&](const std::string& list) { return validate(with_lists(spec, "0: " + list)); };
  CHECK(finding("F0.0.0 F1.0.0 F0.0.1 F1.0.1 B1.0.1 B0.0.1 B1.0.0 B0.0.0") == sound);
  CHECK(finding("F0.0.0 F1.0.0 F1.0.1 F0.0.1 B1.0.1 B0.0.1 B1.0.0 B0.0.0") ==
        Findings{
            "device 0: F1.0.1 (action 2) is out of order: the forward that it needs of stage 0 comes later"});
  CHECK(
      finding("F0.0.0 F1.0.0 F0.0.1 F1.0.1 B1.0.1 B0.0.1 B0.0.0 B1.0.0") ==
      Findings{
          "device 0: B0.0.0 (action 6) is out of order: the backward that it needs of stage 1 comes later"});
}

TEST_CASE("ends of a channel that disagree are named with the first message", "[unit]") {
  const auto schedule =
      with_lists({.kind = Kind::kInterleaved, .pipeline = 2, .virtual_stages = 2, .microbatches = 2},
                 "0: F0.0.0 F1.0.0 F0.1.0 F1.1.0 B1.0.0 B1.1.0 B0.0.0 B0.1.0\n"
                 "1: F0.0.0 F0.1.0 F1.0.0 F1.1.0 B1.0.0 B1.1.0 B0.0.0 B0.1.0");
  REQUIRE(validate(schedule) ==
          Findings{"activation 1 from device 0 to device 1 is sent by F1.0.0 and received by F0.1.0"});
}
