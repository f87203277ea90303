#include <nlohmann/json.hpp>

#include "slimpipe/schedule/simulate.h"

#include "support/catch.h"

using namespace slimpipe::schedule;

namespace {

std::string drawn(const Spec& spec, int width) {
  const auto schedule = build(spec);
  return draw(schedule, simulate(schedule, uniform_cost()), width);
}

}  // namespace

TEST_CASE("the JSON has the documented keys in order, actions zero-based", "[unit]") {
  const auto schedule = build({.pipeline = 2, .microbatches = 1, .slices = 2});
  REQUIRE(to_json(schedule, simulate(schedule, uniform_cost())) ==
          R"({"name":"slimpipe","p":2,"v":1,"m":1,"n":2,"placement":"loop","split_w":false,)"
          R"("stage_of":[[0],[1]],)"
          R"("devices":[[["F",0,0,0,0],["F",0,0,0,1],["B",0,0,0,1],["B",0,0,0,0]],)"
          R"([["F",0,1,0,0],["F",0,1,0,1],["B",0,1,0,1],["B",0,1,0,0]]],)"
          R"("peak":[2,2],"bubble":0.3333333333333333,"makespan":9.0})");
}

TEST_CASE("the JSON tells a split backward", "[unit]") {
  auto schedule = build({});
  schedule.devices[0].pop_back();
  schedule.devices[0].push_back({.kind = ActionKind::kBackwardInput});
  schedule.devices[0].push_back({.kind = ActionKind::kBackwardWeight});
  const auto json = nlohmann::json::parse(to_json(schedule, simulate(schedule, uniform_cost())));
  REQUIRE(json["split_w"] == true);
  REQUIRE(json["devices"].dump() == R"([[["F",0,0,0,0],["B",0,0,0,0],["W",0,0,0,0]]])");
}

TEST_CASE("a drawing with room labels every cell", "[unit]") {
  REQUIRE(drawn({.kind = Kind::kOneFOneB, .pipeline = 3, .microbatches = 3}, 80) ==
          "1f1b: 3 devices, 3 microbatches\n"
          "0  F0 F1 F2 ............B0--- ...B1--- ...B2---\n"
          "1  ...F0 F1 ......B0--- F2 B1--- ...B2--- ......\n"
          "2  ......F0 B0--- F1 B1--- F2 B2--- ............\n"
          "bubble 40.00 %, makespan 15\n"
          "peak slices in flight: 3 2 1; worst device: activations of 3.00 microbatches over its layers\n");
}

TEST_CASE("a drawing with less room marks cells by microbatch", "[unit]") {
  REQUIRE(drawn({.pipeline = 3, .microbatches = 2, .slices = 4, .warmup_slope = 1}, 40) ==
          "slimpipe: 3 devices, 2 microbatches of 4 slices, warm-up slope 1\n"
          "0  000011....aa1aa1aa.aa.bbbbbbbb\n"
          "1  .00001..aa1aa1aa1aa.bbbbbbbb..\n"
          "2  ..0000aa1aa1aa1aa1bbbbbbbb....\n"
          "forward: digit, microbatch modulo 10; backward: letter, a is microbatch 0; idle: .\n"
          "bubble 20.00 %, makespan 30\n"
          "peak slices in flight: 6 5 4; worst device: activations of 1.50 microbatches over its layers\n");
}

TEST_CASE("a drawing that does not fit is cut at the width and says so", "[unit]") {
  REQUIRE(drawn({.kind = Kind::kGpipe, .pipeline = 2, .microbatches = 4}, 13) ==
          "gpipe: 2 devices, 4 microbatches\n"
          "0  0123...aab\n"
          "1  .0123aabbc\n"
          "cut: the first 10 of 15 columns; 18 are needed\n"
          "forward: digit, microbatch modulo 10; backward: letter, a is microbatch 0; idle: .\n"
          "bubble 20.00 %, makespan 15\n"
          "peak slices in flight: 4 4; worst device: activations of 4.00 microbatches over its layers\n");
}

TEST_CASE("odd widths, costs and sizes are drawn without complaint", "[unit]") {
  const auto schedule = build({.pipeline = 12, .microbatches = 30, .slices = 3});
  for (const int width : {-5, 0, 1, 7, 100, 100000})
    for (const auto& cost : {uniform_cost(), uniform_cost({0, 0, 0}), uniform_cost({1e-9, 1e9, 1e9}),
                             uniform_cost({0.7, 1.1, 0.8, 0.3})}) {
      const auto text = draw(schedule, simulate(schedule, cost), width);
      REQUIRE(text.find("bubble") != std::string::npos);
      REQUIRE(text.size() < 3000000);
    }
}

TEST_CASE("one device and one microbatch are named in the singular", "[unit]") {
  REQUIRE(drawn({.pipeline = 1, .microbatches = 1, .slices = 2, .warmup_slope = 1}, 80)
              .find("slimpipe: 1 device, 1 microbatch of 2 slices, warm-up slope 1\n") == 0);
}

TEST_CASE("a forward-only drawing says so", "[unit]") {
  const auto schedule = build_forward_only({.pipeline = 2, .microbatches = 2});
  REQUIRE(draw(schedule, simulate(schedule, uniform_cost()), 80)
              .find("slimpipe: 2 devices, 2 microbatches, warm-up slope 2, forward only\n"
                    "0  F0 F1 ...\n"
                    "1  ...F0 F1\n") == 0);
}
