#include <algorithm>
#include <deque>

#include "slimpipe/schedule/validate.h"

#include "schedule/execution.h"
#include "support/catch.h"
#include "unit/schedule/hand_made.h"
#include "unit/schedule/random_specs.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

bool finishes(const Schedule& schedule, const ChannelMap& map) {
  const auto cost = uniform_cost();
  Execution execution(schedule, map, cost);
  execution.run();
  return execution.finished();
}

bool runs_with(const Schedule& schedule, int outstanding) {
  auto map = connect(schedule);
  for (auto& channel : map.channels) channel.outstanding = outstanding;
  return finishes(schedule, map);
}

/// The list with its forwards and its backwards in their order, after so many forwards in pairs.
std::vector<Action> with_warmup(const std::vector<Action>& list, int warmup) {
  std::deque<Action> forwards;
  std::deque<Action> backwards;
  for (const auto& action : list)
    (action.kind == ActionKind::kForward ? forwards : backwards).push_back(action);
  std::vector<Action> result;
  const auto take = [&](std::deque<Action>& from) {
    if (from.empty()) return;
    result.push_back(from.front());
    from.pop_front();
  };
  for (int k = 0; k < warmup; ++k) take(forwards);
  while (!backwards.empty()) {
    take(forwards);
    take(backwards);
  }
  return result;
}

/// The planned number of outstanding sends of each channel, in no order.
std::vector<int> planned_outstanding(const Schedule& schedule) {
  auto map = connect(schedule);
  REQUIRE(plan_outstanding_sends(schedule, map).empty());
  std::vector<int> numbers;
  for (const auto& channel : map.channels) numbers.push_back(channel.outstanding);
  return numbers;
}

bool runs_as_planned(const Schedule& schedule) {
  auto map = connect(schedule);
  REQUIRE(plan_outstanding_sends(schedule, map).empty());
  return finishes(schedule, map);
}

/// Ends of actions as a graph of what each needs; true where it has no cycle. Written apart from
/// Execution, for pipelines of one chunk a device.
bool acyclic(const Schedule& schedule, int outstanding) {
  const int devices = schedule.spec.pipeline;
  struct Node {
    int device;
    int action;
  };
  const auto position = [&](int device, const Action& action) {
    const auto& list = schedule.devices[device];
    return static_cast<int>(std::find(list.begin(), list.end(), action) - list.begin());
  };
  std::vector<std::vector<std::vector<Node>>> needs(devices);
  for (int device = 0; device < devices; ++device) {
    needs[device].resize(schedule.devices[device].size());
    int sent_up = 0;
    int sent_down = 0;
    std::vector<int> up;  // actions of the next device that receive activations, in order
    std::vector<int> down;
    const auto collect = [&](int other, ActionKind kind, std::vector<int>& actions) {
      if (other < 0 || other >= devices) return;
      for (int k = 0; k < std::ssize(schedule.devices[other]); ++k)
        if (schedule.devices[other][k].kind == kind) actions.push_back(k);
    };
    collect(device + 1, ActionKind::kForward, up);
    collect(device - 1, ActionKind::kBackward, down);
    for (int k = 0; k < std::ssize(schedule.devices[device]); ++k) {
      const auto& action = schedule.devices[device][k];
      const bool forward = action.kind == ActionKind::kForward;
      auto& need = needs[device][k];
      if (k > 0) need.push_back({device, k - 1});
      const int from = forward ? device - 1 : device + 1;
      if (from >= 0 && from < devices) need.push_back({from, position(from, action)});
      const int to = forward ? device + 1 : device - 1;
      if (to < 0 || to >= devices) continue;
      const int number = (forward ? sent_up : sent_down)++ - outstanding;
      if (number < 0) continue;
      const int receive = (forward ? up : down)[number];
      if (receive >= 2) need.push_back({to, receive - 2});  // the receiver has reached receive - 1
    }
  }
  std::vector<int> done(devices);
  for (bool moved = true; moved;) {
    moved = false;
    for (int device = 0; device < devices; ++device)
      while (done[device] < std::ssize(needs[device]) &&
             std::all_of(needs[device][done[device]].begin(), needs[device][done[device]].end(),
                         [&](const Node& node) { return done[node.device] > node.action; })) {
        ++done[device];
        moved = true;
      }
  }
  for (int device = 0; device < devices; ++device)
    if (done[device] != std::ssize(needs[device])) return false;
  return true;
}

using Findings = std::vector<std::string>;

/// What validate says of a sound schedule; compared with, so that a failure prints the findings.
const Findings sound;

}  // namespace

TEST_CASE("random schedules run with the outstanding sends that are planned for them", "[unit]") {
  Dice dice(4);
  for (int round = 0; round < 150; ++round) {
    const auto spec = random_spec(dice, {.max_p = 12, .max_v = 5, .max_m = 12, .max_n = 48});
    INFO(format_text(build(spec)).substr(0, 60));
    REQUIRE(runs_as_planned(build(spec)));
    REQUIRE(runs_as_planned(build_forward_only(spec)));
  }
}

TEST_CASE("the steepest slope runs with several stages a device, and a steeper one deadlocks", "[unit]") {
  for (int p = 2; p <= 6; ++p)
    for (const int v : {2, 3, 4})
      for (const int group : {p, p + 1, 2 * p - 1}) {
        Spec spec{.pipeline = p, .virtual_stages = v, .microbatches = 4, .slices = 3 * group};
        if (group_size(spec) != group) spec.slices = group;
        if (group_size(spec) != group) continue;
        spec.warmup_slope = static_cast<int>(steepest_slope(spec));
        INFO("p " << p << " v " << v << " n " << spec.slices << " slope " << spec.warmup_slope);
        REQUIRE(spec.warmup_slope >= 2);
        for (const int m : {1, 2, 3, 4}) {
          spec.microbatches = m;
          REQUIRE(validate(build(spec)) == sound);
        }
        // The lists of a slope steeper by one, which build() refuses.
        auto steeper = build(spec);
        for (int device = 0; device < p; ++device)
          steeper.devices[device] = with_warmup(
              steeper.devices[device], spec.slices * v - 1 + (spec.warmup_slope + 1) * (p - 1 - device));
        const auto map = connect(steeper);
        REQUIRE_FALSE(finishes(steeper, map));
      }
}

TEST_CASE("a deadlock lists what every device waits for", "[unit]") {
  const Spec spec{.kind = Kind::kGpipe, .pipeline = 3, .microbatches = 2};
  const auto schedule = with_lists(spec,
                                   "0: F0.0.0 B0.0.0 F0.1.0 B0.1.0\n"
                                   "1: F0.0.0 F0.1.0 B0.0.0 B0.1.0\n"
                                   "2: F0.0.0 B0.0.0 F0.1.0 B0.1.0\n");
  REQUIRE(validate(schedule) ==
          Findings{
              "deadlock: device 0 at B0.0.0 (action 1 of 4) waits to receive the gradient of microbatch 0, "
              "slice 0 from device 1 at F0.1.0 (action 1 of 4)",
              "deadlock: device 1 at F0.1.0 (action 1 of 4) waits to receive the activation of microbatch 1, "
              "slice 0 from device 0 at B0.0.0 (action 1 of 4)",
              "deadlock: device 2 at F0.1.0 (action 2 of 4) waits to receive the activation of microbatch 1, "
              "slice 0 from device 1 at F0.1.0 (action 1 of 4)"});
}

TEST_CASE("a sender ahead of its receiver is given the outstanding sends that it needs", "[unit]") {
  // Device 0 sends `count` activations before it takes a gradient; device 1 takes one at a time.
  const auto forwards_first = [](int count) {
    auto schedule = build({.kind = Kind::kGpipe, .pipeline = 2, .microbatches = 7});
    schedule.devices[0] =
        build({.pipeline = 2, .microbatches = 7, .slices = 1, .warmup_slope = count}).devices[0];
    schedule.devices[1] = build({.kind = Kind::kOneFOneB, .pipeline = 2, .microbatches = 7}).devices[1];
    return schedule;
  };
  REQUIRE(runs_with(forwards_first(4), 1));
  REQUIRE_FALSE(runs_with(forwards_first(5), 1));
  for (const int count : {1, 4, 5, 6}) {
    INFO("count " << count);
    REQUIRE(validate(forwards_first(count)) == sound);
    REQUIRE(runs_as_planned(forwards_first(count)));
  }
  auto shallow = planned_outstanding(forwards_first(1));
  auto deep = planned_outstanding(forwards_first(6));
  REQUIRE(*std::max_element(deep.begin(), deep.end()) > *std::max_element(shallow.begin(), shallow.end()));
}

TEST_CASE("slope 3 needs an outstanding send, slope 4 still runs with one, slope 5 needs more", "[unit]") {
  const auto slim = [](int slope) {
    return build({.pipeline = 4, .microbatches = 6, .slices = 5, .warmup_slope = slope});
  };
  REQUIRE(runs_with(slim(2), 0));
  REQUIRE_FALSE(runs_with(slim(3), 0));
  REQUIRE(runs_with(slim(3), 1));
  REQUIRE(runs_with(slim(4), 1));
  REQUIRE_FALSE(runs_with(slim(5), 1));
  for (const int number : planned_outstanding(slim(2))) REQUIRE(number <= 2);
  for (const int number : planned_outstanding(slim(3))) REQUIRE(number == 3);
  for (const int number : planned_outstanding(build({.kind = Kind::kTeraPipe, .pipeline = 3, .slices = 4})))
    REQUIRE(number == 1);
}

TEST_CASE("outstanding sends suffice up to slope 12, on many devices too", "[unit]") {
  for (int slope = 1; slope <= 12; ++slope)
    for (const int p : {2, 3, 7, 24})
      for (const int n : {1, 3, 16}) {
        const Spec spec{.pipeline = p, .microbatches = 9, .slices = n, .warmup_slope = slope};
        INFO("p " << p << " n " << n << " slope " << slope);
        REQUIRE(validate(build(spec)) == sound);
        REQUIRE(runs_as_planned(build(spec)));
      }
}

TEST_CASE("deadlock is judged as by an independent search for cycles", "[unit]") {
  Dice dice(5);
  int deadlocks = 0;
  const int rounds = 600;
  for (int round = 0; round < rounds; ++round) {
    const int p = dice.roll(2, 4);
    const int m = dice.roll(1, 5);
    const int n = dice.roll(1, 3);
    auto schedule = build({.kind = Kind::kTeraPipe, .pipeline = p, .microbatches = m, .slices = n});
    // Each device takes its list from a slimpipe schedule of a slope and place of its own.
    for (auto& list : schedule.devices) {
      const Spec other{.pipeline = 6, .microbatches = m, .slices = n, .warmup_slope = dice.roll(1, 3)};
      list = build(other).devices[dice.roll(0, 5)];
    }
    const bool runs = acyclic(schedule, kUnboundedSends);
    INFO(format_text(schedule));
    REQUIRE(validate(schedule).empty() == runs);
    REQUIRE(runs_with(schedule, 1) == acyclic(schedule, 1));
    if (runs) REQUIRE(runs_as_planned(schedule));
    if (!runs) ++deadlocks;
  }
  REQUIRE(deadlocks > rounds / 10);
  REQUIRE(deadlocks < rounds * 9 / 10);
}
