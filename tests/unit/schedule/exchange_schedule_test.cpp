// Schedules with the attention context exchange in them.

#include <map>

#include "slimpipe/schedule/channels.h"
#include "slimpipe/schedule/exchange.h"
#include "slimpipe/schedule/validate.h"

#include "support/catch.h"
#include "unit/schedule/random_specs.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

constexpr Exchange kBoth[] = {Exchange::kPairwise, Exchange::kBalanced};

/// Two devices, two slices of 128 tokens: in the one slot of both, device 0 has 128 keys before its slice,
/// device 1 none, so it takes them all.
Schedule two_devices(bool early = true) {
  auto schedule = build({.kind = Kind::kTeraPipe, .pipeline = 2, .slices = 2});
  Action& owner = schedule.devices[0][1];
  schedule.exchange = {.slice_tokens = 128, .early = early, .slots = {{{0, 1, 0, 128, owner}}}};
  owner.arg = 0;
  schedule.devices[1][0].arg = 0;
  return schedule;
}

/// The steps of the device's k-th action as text, with layers 2 a stage.
std::vector<std::string> steps_of(const Schedule& schedule, int device, int k) {
  const std::vector<int> layers(schedule.spec.stages(), 2);
  DeviceExpansions expansions(schedule, device, layers);
  std::vector<std::string> texts;
  for (const LayerStep& step : expansions.of(schedule.devices[device][k])) {
    texts.push_back(std::string(name_of(step.phase)));
    if (step.layer >= 0) texts.back() += " " + std::to_string(step.layer);
  }
  return texts;
}

/// What validate says of two_devices() with the damage done.
template <typename Damage>
std::string finding_of(Damage damage) {
  auto schedule = two_devices();
  damage(schedule);
  const auto findings = validate(schedule);
  return findings.empty() ? "" : findings.front();
}

}  // namespace

TEST_CASE("an exchange that has no helps leaves the schedule as it is", "[unit]") {
  Dice dice(24);
  for (int round = 0; round < 40; ++round) {
    const auto schedule = build(random_lockstep_spec(dice, 8, 3));
    REQUIRE(with_exchange(schedule, Exchange::kNone, 16) == schedule);
  }
}

TEST_CASE("an exchange can be taken out again, and is sound, in text too", "[unit]") {
  Dice dice(25);
  int idle_helpers = 0;
  for (int round = 0; round < 60; ++round) {
    const auto schedule = build(random_lockstep_spec(dice, 8, 3));
    for (const auto exchange : kBoth) {
      const auto exchanging = with_exchange(schedule, exchange, 128 * dice.roll(1, 4), dice.roll(0, 1) == 1);
      INFO(format_text(exchanging).substr(0, 60));
      const auto problems = validate(exchanging);
      CAPTURE(problems);
      REQUIRE(problems.empty());
      REQUIRE(parse_text(format_text(exchanging)) == exchanging);
      auto without = exchanging;
      without.exchange = {};
      for (auto& actions : without.devices) {
        idle_helpers += static_cast<int>(
            std::erase_if(actions, [](const Action& action) { return action.kind == ActionKind::kHelp; }));
        for (Action& action : actions) action.arg = -1;
      }
      REQUIRE(without == schedule);
    }
  }
  REQUIRE(idle_helpers > 0);
}

TEST_CASE("every help has its messages in every layer of the owner, whatever layers the stages have",
          "[unit]") {
  Dice dice(26);
  for (int round = 0; round < 60; ++round) {
    const auto schedule =
        with_exchange(build(random_lockstep_spec(dice, 6, 3)), kBoth[round % 2], 256, dice.roll(0, 1) == 1);
    std::vector<int> layers(schedule.spec.stages());
    for (int& count : layers) count = dice.roll(1, 4);
    struct Ends {
      std::vector<int> sent;  // layers, in order
      std::vector<int> received;
      bool operator==(const Ends&) const = default;
    };
    std::map<std::tuple<int, int, Payload>, Ends> messages;  // slot, help
    for (int device = 0; device < schedule.spec.pipeline; ++device) {
      DeviceExpansions expansions(schedule, device, layers);
      for (const Action& action : schedule.devices[device])
        for (const LayerStep& step : expansions.of(action)) {
          if (!is_exchange(step.phase) || step.peer < 0) continue;
          auto& ends = messages[{action.arg, step.help, payload_of(step.phase)}];
          (is_send(step.phase) ? ends.sent : ends.received).push_back(step.layer);
        }
    }
    std::size_t helps = 0;
    for (int slot = 0; slot < std::ssize(schedule.exchange.slots); ++slot)
      for (int index = 0; index < std::ssize(schedule.exchange.slots[slot]); ++index) {
        ++helps;
        const Help& help = schedule.exchange.slots[slot][index];
        const int stage = schedule.stage_of[help.owner][help.action.chunk];
        std::vector<int> order(layers[stage]);
        const bool forward = help.action.kind == ActionKind::kForward;
        for (int layer = 0; layer < layers[stage]; ++layer)
          order[layer] = forward ? layer : layers[stage] - 1 - layer;
        for (const auto payload : {Payload::kExchangeKeys, Payload::kExchangeQuery, Payload::kExchangeResult})
          REQUIRE(messages[{slot, index, payload}] == Ends{order, order});
      }
    REQUIRE(messages.size() == 3 * helps);
  }
}

TEST_CASE("an owner's keys leave one layer ahead if the exchange is early", "[unit]") {
  using Steps = std::vector<std::string>;
  CHECK(steps_of(two_devices(), 0, 1) ==
        Steps{"gather keys 0", "send keys 0", "embed", "pre-attention 0", "send query 0", "attention 0",
              "receive result 0", "merge attention 0", "gather keys 1", "send keys 1", "post-attention 0",
              "pre-attention 1", "send query 1", "attention 1", "receive result 1", "merge attention 1",
              "post-attention 1", "send activation"});
  CHECK(steps_of(two_devices(false), 0, 1) ==
        Steps{"embed", "pre-attention 0", "gather keys 0", "send keys 0", "send query 0", "attention 0",
              "receive result 0", "merge attention 0", "post-attention 0", "pre-attention 1", "gather keys 1",
              "send keys 1", "send query 1", "attention 1", "receive result 1", "merge attention 1",
              "post-attention 1", "send activation"});
  CHECK(steps_of(two_devices(), 1, 0) ==
        Steps{"receive activation", "pre-attention 0", "attention 0", "receive keys 0", "receive query 0",
              "help attention 0", "send result 0", "post-attention 0", "pre-attention 1", "attention 1",
              "receive keys 1", "receive query 1", "help attention 1", "send result 1", "post-attention 1",
              "loss"});
}

TEST_CASE("an owner waits for its helper", "[unit]") {
  const auto schedule = two_devices();
  REQUIRE(validate(schedule).empty());
  const double pairs = 128 * 128;
  const double triangle = 128 * 129 / 2.0;
  const SliceCost cost{.linear = 0, .attention = 1, .backward_linear = 0, .backward_attention = 0};
  const auto run = simulate(schedule, slice_cost_model(cost, 128, schedule.exchange));
  // Slot 0: a triangle. Slot 1: device 1 its own triangle and the help. Slot 2: all of slice 1 on device 1.
  REQUIRE(run.makespan == Approx(triangle + (triangle + pairs) + (triangle + pairs)));
}

TEST_CASE("a table of helps that is not sound is found out", "[unit]") {
  REQUIRE(finding_of([](Schedule&) {}).empty());
  const auto help_of = [](Schedule& schedule) -> Help& { return schedule.exchange.slots[0][0]; };
  const std::string name = "help of device 1 for F0.0.1 of device 0 in exchange slot 0";
  CHECK(finding_of([&](Schedule& s) { help_of(s).keys = 129; }) ==
        name + ": keys 0+129 do not lie before the slice, which begins at 128");
  CHECK(finding_of([&](Schedule& s) { help_of(s).keys = 0; }) ==
        name + ": keys 0+0 do not lie before the slice, which begins at 128");
  CHECK(finding_of([&](Schedule& s) {
          help_of(s).first_key = std::int64_t{1} << 62;
        }).starts_with(name + ": keys 4611686018427387904+128 do not lie"));
  CHECK(finding_of([&](Schedule& s) { help_of(s).helper = 2; }) ==
        "help of device 2 for F0.0.1 of device 0 in exchange slot 0: no such devices or action");
  CHECK(finding_of([&](Schedule& s) { help_of(s).helper = 0; }) ==
        "device 0 is owner and helper in exchange slot 0");
  CHECK(finding_of([&](Schedule& s) { help_of(s).action.slice = 2; }).ends_with("no such devices or action"));
  CHECK(finding_of([&](Schedule& s) { s.exchange.slots[0].push_back(help_of(s)); }) ==
        name + " overlaps with another");
  CHECK(finding_of([&](Schedule& s) { s.exchange.slots.emplace_back(); }) == "exchange slot 1 has no help");
  CHECK(finding_of([&](Schedule& s) { s.exchange.slice_tokens = 0; }) == "exchange of slices of 0 tokens");
  CHECK(finding_of([&](Schedule& s) { s.devices[0][1].arg = -1; }) ==
        "device 0 has no action of exchange slot 0");
  CHECK(finding_of([&](Schedule& s) { s.devices[1][0].arg = -1; }) ==
        "device 1 has no action of exchange slot 0");
  CHECK(finding_of([&](Schedule& s) { std::swap(s.devices[0][0].arg, s.devices[0][1].arg); }) ==
        "device 0: F0.0.0@0 has no part in exchange slot 0");
  CHECK_FALSE(finding_of([&](Schedule& s) { s.devices[1][1].arg = 0; }).empty());
  CHECK_FALSE(finding_of([&](Schedule& s) { s.devices[1][0].arg = 1; }).empty());
  CHECK_FALSE(finding_of([&](Schedule& s) { s.devices[1].push_back({.kind = ActionKind::kHelp}); }).empty());
  // Device 1 helps in its last forward, for which it waits for device 0's slice 1: a cycle.
  CHECK(finding_of([&](Schedule& s) { std::swap(s.devices[1][0].arg, s.devices[1][1].arg); }).find("waits") !=
        std::string::npos);
}
