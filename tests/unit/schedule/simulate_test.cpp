#include "slimpipe/schedule/simulate.h"

#include <cmath>
#include <limits>

#include "slimpipe/core/check.h"

#include "schedule/execution.h"
#include "support/catch.h"
#include "unit/schedule/random_specs.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

constexpr double kTolerance = 1e-12;

template <typename Check>
void for_each_size(Kind kind, Check check) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 6; ++m)
      for (int n = 1; n <= (is_sliced(kind) ? 16 : 1); ++n) {
        INFO(name_of(kind) << " p " << p << " m " << m << " n " << n);
        check(p, m, n);
      }
}

/// The closed form of every kind at F = 1, B = 2 and no latency: makespan 3(mn + p - 1).
void require_no_steady_bubble(const Simulation& result, int p, int m, int n) {
  REQUIRE(std::abs(result.makespan - 3.0 * (m * n + p - 1)) < kTolerance);
  REQUIRE(std::abs(result.bubble - static_cast<double>(p - 1) / (m * n + p - 1)) < kTolerance);
  for (const double bubble : result.device_bubble) REQUIRE(std::abs(bubble - result.bubble) < kTolerance);
}

}  // namespace

TEST_CASE("bubble and peak of gpipe, terapipe and 1f1b are their closed forms", "[unit]") {
  for (const auto kind : {Kind::kGpipe, Kind::kTeraPipe, Kind::kOneFOneB})
    for_each_size(kind, [&](int p, int m, int n) {
      const auto result =
          simulate(build({.kind = kind, .pipeline = p, .microbatches = m, .slices = n}), uniform_cost());
      require_no_steady_bubble(result, p, m, n);
      REQUIRE(result.worst_peak_fraction == (kind == Kind::kOneFOneB ? std::min(m, p) : m));
    });
}

TEST_CASE("bubble and peak of slimpipe are their closed forms at every slope and slice count", "[unit]") {
  for (const int slope : {1, 2, 3, 4, 6})
    for_each_size(Kind::kSlimPipe, [&](int p, int m, int n) {
      INFO("slope " << slope);
      const auto result = simulate(
          build({.pipeline = p, .microbatches = m, .slices = n, .warmup_slope = slope}), uniform_cost());
      require_no_steady_bubble(result, p, m, n);
      for (int r = 0; r < p; ++r) REQUIRE(result.peak[r] == std::min(m * n, n + slope * (p - 1 - r)));
      REQUIRE(std::abs(result.worst_peak_fraction - std::min(1.0 * m * n, 1.0 * n + slope * (p - 1)) / n) <
              kTolerance);
    });
}

TEST_CASE("slope δ hides a latency up to (δ - 1)(F + B)/2: it is paid once each way", "[unit]") {
  for (const int slope : {2, 3, 4})
    for (const double share : {0.5, 1.0})
      for_each_size(Kind::kSlimPipe, [&](int p, int m, int n) {
        const double latency = share * (slope - 1) * 1.5;
        const auto schedule = build({.pipeline = p, .microbatches = m, .slices = n, .warmup_slope = slope});
        const auto result = simulate(schedule, uniform_cost(1, 2, latency));
        REQUIRE(std::abs(result.makespan - (3 * (m * n + p - 1) + 2 * latency * (p - 1))) < 1e-9);
      });
}

TEST_CASE("a latency above what slope 2 hides costs time in the steady state", "[unit]") {
  const auto schedule = build({.pipeline = 4, .microbatches = 4, .slices = 8});
  REQUIRE(simulate(schedule, uniform_cost(1, 2, 1.75)).makespan > 3 * (32 + 3) + 2 * 1.75 * 3 + 0.5);
}

TEST_CASE("slope 1 pays the latency on every turn around the pipeline", "[unit]") {
  for (const double latency : {0.25, 1.0})
    for_each_size(Kind::kSlimPipe, [&](int p, int m, int n) {
      if ((m - 1) * n % p != 0) return;
      const auto schedule = build({.pipeline = p, .microbatches = m, .slices = n, .warmup_slope = 1});
      const int turns = 1 + (m - 1) * n / p;
      REQUIRE(std::abs(simulate(schedule, uniform_cost(1, 2, latency)).makespan -
                       (3 * (m * n + p - 1) + 2 * latency * (p - 1) * turns)) < 1e-9);
    });
}

TEST_CASE("the rule on outstanding sends costs built schedules no time", "[unit]") {
  Dice dice(7);
  for (int round = 0; round < 60; ++round) {
    const auto schedule = build(random_spec(dice, 12, 6, 24));
    const auto cost = uniform_cost(1, 2, dice.roll(0, 3) * 0.5);
    const auto map = connect(schedule);
    Execution unbounded(schedule, map, cost, std::numeric_limits<int>::max() / 2);
    unbounded.run();
    double makespan = 0;
    for (const auto& run : unbounded.devices()) makespan = std::max(makespan, run.clock);
    REQUIRE(simulate(schedule, cost).makespan == makespan);
  }
}

TEST_CASE("actions start when their input is there and the device is free", "[unit]") {
  const auto result =
      simulate(build({.kind = Kind::kOneFOneB, .pipeline = 2, .microbatches = 2}), uniform_cost(1, 3, 0.5));
  const auto& first = result.devices[0];
  const auto& second = result.devices[1];
  REQUIRE(to_string(second[0].action) == "F0.0.0");
  REQUIRE(second[0].start == 1.5);  // forward of device 0 and the latency
  REQUIRE(second[1].start == 2.5);
  REQUIRE(second[1].end == 5.5);
  REQUIRE(to_string(first[2].action) == "B0.0.0");
  REQUIRE(first[2].start == 6.0);
  REQUIRE(first[2].end == 9.0);
  REQUIRE(result.makespan == first[3].end);
}

TEST_CASE("every step is asked for its cost once, with its device and layer", "[unit]") {
  const auto schedule = build({.pipeline = 2, .microbatches = 2, .slices = 3});
  int layer_steps = 0;
  int losses = 0;
  const CostModel cost{.step =
                           [&](int device, const Action&, const LayerStep& step) {
                             layer_steps += step.layer >= 0;
                             losses += step.phase == Phase::kLoss;
                             if (step.phase == Phase::kLoss) REQUIRE(device == 1);
                             return step.phase == Phase::kLoss ? 5.0 : 0.25;
                           },
                       .latency = 0,
                       .layers_per_chunk = 4};
  const auto result = simulate(schedule, cost);
  REQUIRE(layer_steps == 2 * 6 * 4 * (3 + 4));
  REQUIRE(losses == 6);
  // Device 1: receive, 12 layer steps and the loss; 16 layer steps, send and release.
  const double busy = 6 * (0.25 + 3.0 + 5.0 + 4.0 + 0.5);
  REQUIRE(std::abs(result.device_bubble[1] - (1 - busy / result.makespan)) < kTolerance);
}

TEST_CASE("a schedule without cost has no bubble and no length", "[unit]") {
  const auto result = simulate(build({.pipeline = 2}), uniform_cost(0, 0));
  REQUIRE(result.makespan == 0);
  REQUIRE(result.bubble == 0);
}

TEST_CASE("costs and latencies that are no time are refused", "[unit]") {
  const auto schedule = build({.pipeline = 2});
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    REQUIRE_THROWS_AS(simulate(schedule, uniform_cost(wrong, 1)), Error);
    REQUIRE_THROWS_AS(simulate(schedule, uniform_cost(1, 2, wrong)), Error);
  }
}

TEST_CASE("a schedule that is not sound is not simulated", "[unit]") {
  auto schedule = build({.microbatches = 2});
  schedule.devices[0].pop_back();
  REQUIRE_THROWS_AS(simulate(schedule, uniform_cost()), Error);
}

TEST_CASE("a forward-only run holds one microbatch's slices and fills the pipeline", "[unit]") {
  const auto schedule = build_forward_only({.pipeline = 3, .microbatches = 4, .slices = 5});
  const auto result = simulate(schedule, uniform_cost());
  REQUIRE(result.makespan == 4 * 5 + 2);
  REQUIRE(result.peak == std::vector<int>{5, 5, 5});
}

TEST_CASE("a split backward keeps its slice until the weight part and costs the same in sum", "[unit]") {
  auto schedule = build({.slices = 2});
  using enum ActionKind;
  schedule.devices[0] = {{kForward, 0, 0, 0},       {kForward, 0, 0, 1},        {kBackwardInput, 0, 0, 1},
                         {kBackwardInput, 0, 0, 0}, {kBackwardWeight, 0, 0, 1}, {kBackwardWeight, 0, 0, 0}};
  const auto result = simulate(schedule, uniform_cost());
  REQUIRE(result.makespan == 6);
  REQUIRE(result.peak == std::vector<int>{2});
}
