#include <fstream>
#include <sstream>

#include "slimpipe/core/check.h"
#include "slimpipe/schedule/schedule.h"

#include "support/catch.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

std::string read_golden(const std::string& name) {
  const auto path = std::string(SLIMPIPE_SOURCE_DIR) + "/tests/golden/schedule/" + name;
  std::ifstream file(path);
  INFO("golden file " << path);
  REQUIRE(file.good());
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

/// The kinds along a device's list, as "FFBB".
std::string letters(const std::vector<Action>& actions) {
  std::string text;
  for (const auto& action : actions) text += to_string(action).front();
  return text;
}

}  // namespace

TEST_CASE("kind names go both ways and list every kind", "[unit]") {
  REQUIRE(kind_names() == std::vector<std::string>{"gpipe", "1f1b", "interleaved-1f1b", "zb-v", "v-half",
                                                   "terapipe", "slimpipe", "slimpipe-zb"});
  for (const auto& name : kind_names()) REQUIRE(name_of(kind_from_name(name).value()) == name);
  REQUIRE_FALSE(kind_from_name("").has_value());
  REQUIRE_FALSE(kind_from_name("SlimPipe").has_value());
  REQUIRE_THROWS_AS(name_of(static_cast<Kind>(9)), Error);
}

TEST_CASE("kinds that cut sequences, split backwards, and go down and up the devices", "[unit]") {
  std::vector<std::string> sliced;
  std::vector<std::string> split;
  std::vector<std::string> vee;
  for (const auto& name : kind_names()) {
    const Kind kind = *kind_from_name(name);
    if (is_sliced(kind)) sliced.push_back(name);
    if (splits_backward(kind)) split.push_back(name);
    if (placement_of(kind) == Placement::kVee) vee.push_back(name);
  }
  REQUIRE(sliced == std::vector<std::string>{"terapipe", "slimpipe", "slimpipe-zb"});
  REQUIRE(split == std::vector<std::string>{"zb-v", "v-half", "slimpipe-zb"});
  REQUIRE(vee == std::vector<std::string>{"zb-v", "v-half"});
}

TEST_CASE("each kind has the stages a device that it is for", "[unit]") {
  const auto problem_of = [](Kind kind, int v) {
    const auto found = problems({.kind = kind,
                                 .pipeline = 2,
                                 .virtual_stages = v,
                                 .microbatches = 2,
                                 .slices = is_sliced(kind) ? 4 : 1});
    REQUIRE(found.size() <= 1);
    return found.empty() ? "" : found.front();
  };
  for (const auto kind : {Kind::kGpipe, Kind::kOneFOneB, Kind::kTeraPipe}) {
    REQUIRE(problem_of(kind, 1).empty());
    REQUIRE(problem_of(kind, 2) ==
            "virtual_stages 2: " + std::string(name_of(kind)) + " has one stage a device (expected 1)");
  }
  for (const auto kind : {Kind::kZbV, Kind::kVHalf}) {
    REQUIRE(problem_of(kind, 2).empty());
    for (const int v : {1, 3})
      REQUIRE(problem_of(kind, v) == "virtual_stages " + std::to_string(v) + ": " +
                                         std::string(name_of(kind)) +
                                         " has two stages a device (expected 2)");
  }
  REQUIRE(problem_of(Kind::kInterleaved, 1) ==
          "virtual_stages 1: interleaved-1f1b interleaves stages (expected at least 2; 1f1b has 1)");
  for (const int v : {2, 3, 8}) REQUIRE(problem_of(Kind::kInterleaved, v).empty());
  for (const auto kind : {Kind::kSlimPipe, Kind::kSlimPipeZb})
    for (const int v : {1, 2, 3, 8}) REQUIRE(problem_of(kind, v).empty());
}

TEST_CASE("interleaved slices need one for each device, and a slope that does not deadlock", "[unit]") {
  const auto interleaved = [](int p, int v, int n, int slope) {
    return problems(
        {.pipeline = p, .virtual_stages = v, .microbatches = 2, .slices = n, .warmup_slope = slope});
  };
  REQUIRE(interleaved(4, 2, 4, 2).empty());
  REQUIRE(interleaved(4, 1, 3, 9).empty());
  REQUIRE(
      interleaved(4, 2, 3, 2) ==
      std::vector<std::string>{"slices 3: with virtual_stages 2 each of the 4 devices needs a slice of its "
                               "own (expected at least 4)"});
  REQUIRE(interleaved(4, 2, 4, 3).empty());
  REQUIRE(interleaved(3, 3, 3, 3).empty());
  REQUIRE(interleaved(2, 2, 10, 5).empty());
  REQUIRE(interleaved(2, 2, 10, 6) ==
          std::vector<std::string>{
              "warmup_slope 6: with virtual_stages 2, pipeline 2 and slices in groups of 2 a "
              "slope above 5 deadlocks (expected 1 to 5)"});
  for (const auto& [p, v] : {std::pair(5, 2), std::pair(4, 3), std::pair(8, 8)})
    REQUIRE(interleaved(p, v, p, 3).size() == 1);
}

TEST_CASE("slices go through the chunks in groups that divide them", "[unit]") {
  const auto group = [](int p, int v, int n) {
    return group_size({.pipeline = p, .virtual_stages = v, .slices = n});
  };
  REQUIRE(group(4, 2, 16) == 4);
  REQUIRE(group(4, 2, 10) == 5);
  REQUIRE(group(4, 2, 7) == 7);
  REQUIRE(group(3, 5, 12) == 3);
  REQUIRE(group(5, 2, 12) == 6);
  REQUIRE(group(4, 1, 16) == 16);
}

TEST_CASE("problems name every wrong number of a spec at once", "[unit]") {
  REQUIRE(problems({}).empty());
  const Spec wrong{.kind = Kind::kOneFOneB,
                   .pipeline = 0,
                   .virtual_stages = 2,
                   .microbatches = -3,
                   .slices = 4,
                   .warmup_slope = 0};
  REQUIRE(problems(wrong) == std::vector<std::string>{
                                 "pipeline 0: expected at least 1",
                                 "microbatches -3: expected at least 1",
                                 "warmup_slope 0: expected at least 1",
                                 "virtual_stages 2: 1f1b has one stage a device (expected 1)",
                                 "slices 4: 1f1b does not cut sequences into slices (expected 1)",
                             });
}

TEST_CASE("a step too large for memory is refused before it is built", "[unit]") {
  const int big = 2147483647;
  const Spec spec{.pipeline = big, .microbatches = big, .slices = big, .warmup_slope = big};
  REQUIRE(problems(spec).size() == 1);
  REQUIRE_THROWS_AS(build(spec), InputError);
  REQUIRE_THROWS_AS(build_forward_only(spec), InputError);
  REQUIRE(problems({.pipeline = 64, .microbatches = 64, .slices = 512}).empty());
  REQUIRE(
      problems({.pipeline = 64, .microbatches = 64, .slices = 513}) ==
      std::vector<std::string>{"microbatches 64 × slices 513 × stages 64 are more than the 2097152 a step "
                               "can have: lower microbatches or slices"});
}

TEST_CASE("layers count towards the size of a step where there are more of them than stages", "[unit]") {
  const Spec spec{.pipeline = 4, .microbatches = 2048, .slices = 32};
  REQUIRE(problems(spec, 32).empty());
  REQUIRE(
      problems(spec, 33) ==
      std::vector<std::string>{"microbatches 2048 × slices 32 × layers 33 are more than the 2097152 a step "
                               "can have: lower microbatches or slices"});
}

TEST_CASE("building from a wrong spec lists its problems", "[unit]") {
  REQUIRE_THROWS_WITH(build({.kind = Kind::kGpipe, .microbatches = 0, .slices = 2}),
                      "cannot build this schedule: microbatches 0: expected at least 1; slices 2: gpipe does "
                      "not cut sequences "
                      "into slices (expected 1)");
}

TEST_CASE("built schedules equal their golden texts", "[unit]") {
  const auto spec = [](Kind kind, int p, int m, int n, int slope) {
    return Spec{.kind = kind, .pipeline = p, .microbatches = m, .slices = n, .warmup_slope = slope};
  };
  CHECK(format_text(build(spec(Kind::kGpipe, 2, 3, 1, 2))) == read_golden("gpipe_p2_m3.txt"));
  CHECK(format_text(build(spec(Kind::kOneFOneB, 4, 5, 1, 2))) == read_golden("1f1b_p4_m5.txt"));
  CHECK(format_text(build(spec(Kind::kTeraPipe, 2, 2, 3, 2))) == read_golden("terapipe_p2_m2_n3.txt"));
  CHECK(format_text(build(spec(Kind::kSlimPipe, 4, 2, 4, 2))) == read_golden("slimpipe_p4_m2_n4.txt"));
  CHECK(format_text(build(spec(Kind::kSlimPipe, 4, 2, 4, 1))) == read_golden("slimpipe_p4_m2_n4_slope1.txt"));
  CHECK(format_text(build(spec(Kind::kSlimPipe, 3, 3, 2, 3))) == read_golden("slimpipe_p3_m3_n2_slope3.txt"));
  CHECK(format_text(build_forward_only(spec(Kind::kSlimPipe, 2, 2, 3, 2))) ==
        read_golden("forward_only_p2_m2_n3.txt"));
}

TEST_CASE("slimpipe warms up by slices - 1 + slope per following device, at most by all forwards", "[unit]") {
  const auto schedule = build({.pipeline = 3, .microbatches = 3, .slices = 2, .warmup_slope = 2});
  REQUIRE(letters(schedule.devices[2]) == "FFBFBFBFBFBB");
  REQUIRE(letters(schedule.devices[1]) == "FFFFBFBFBBBB");
  REQUIRE(letters(schedule.devices[0]) == "FFFFFFBBBBBB");
  const auto capped = build({.pipeline = 3, .microbatches = 2, .slices = 2, .warmup_slope = 1000000000});
  REQUIRE(letters(capped.devices[0]) == "FFFFBBBB");
}

TEST_CASE("slimpipe of one slice at slope 1 is 1f1b", "[unit]") {
  for (const int p : {1, 2, 5})
    for (const int m : {1, 3, 8})
      REQUIRE(build({.pipeline = p, .microbatches = m, .warmup_slope = 1}).devices ==
              build({.kind = Kind::kOneFOneB, .pipeline = p, .microbatches = m}).devices);
}

TEST_CASE("every kind runs backwards in the same order, so sums of gradients are the same", "[unit]") {
  const auto backwards = [](const Schedule& schedule) {
    std::vector<Action> actions;
    for (const auto& action : schedule.devices.front())
      if (action.kind != ActionKind::kForward) actions.push_back(action);
    return actions;
  };
  const Spec slim{.pipeline = 3, .microbatches = 4, .slices = 5};
  Spec tera = slim;
  tera.kind = Kind::kTeraPipe;
  REQUIRE(backwards(build(slim)) == backwards(build(tera)));
  REQUIRE(to_string(backwards(build(slim)).front()) == "B0.0.4");
}

TEST_CASE("the device of a stage is found", "[unit]") {
  const auto schedule = build({.pipeline = 3});
  for (int stage = 0; stage < 3; ++stage) REQUIRE(schedule.device_of(stage) == stage);
  REQUIRE_THROWS_WITH(schedule.device_of(3), "stage 3 is on no device of this schedule of 3 stages");
}
