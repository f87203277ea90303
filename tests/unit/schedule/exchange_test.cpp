#include "slimpipe/schedule/exchange.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "slimpipe/core/check.h"

#include "schedule/execution.h"
#include "support/catch.h"
#include "unit/schedule/random_specs.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

std::int64_t largest(const std::vector<std::int64_t>& work) {
  return *std::max_element(work.begin(), work.end());
}

/// A slot of devices 0, 1, ... whose prefixes have so many keys; negative: idle.
ExchangeSlot slot_of(std::int64_t queries, const std::vector<std::int64_t>& keys) {
  ExchangeSlot slot{.queries = queries};
  for (int device = 0; device < std::ssize(keys); ++device) {
    if (keys[device] < 0)
      slot.loads.push_back({.device = device});
    else
      slot.loads.push_back({device, 0, keys[device], queries * (queries + 1) / 2});
  }
  return slot;
}

/// Owners give what they have, keys once each, and nobody is owner and helper.
void require_sound(const ExchangeSlot& slot) {
  std::set<int> owners;
  std::set<int> helpers;
  std::map<int, std::int64_t> given;
  for (const Help& help : slot.helps) {
    owners.insert(help.owner);
    helpers.insert(help.helper);
    REQUIRE(help.keys > 0);
    REQUIRE(help.first_key == given[help.owner]);  // ranges of an owner follow one another
    given[help.owner] += help.keys;
  }
  for (const int owner : owners) REQUIRE(helpers.count(owner) == 0);
  for (const SlotLoad& load : slot.loads)
    if (owners.count(load.device) > 0) REQUIRE(given[load.device] <= load.keys);
  const auto before = work_alone(slot);
  const auto after = work_with_helps(slot);
  REQUIRE(std::accumulate(before.begin(), before.end(), std::int64_t{0}) ==
          std::accumulate(after.begin(), after.end(), std::int64_t{0}));
  if (!slot.helps.empty()) REQUIRE(slot.helps.size() <= owners.size() + helpers.size() - 1);
}

void require_balanced(const ExchangeSlot& slot) {
  const auto after = work_with_helps(slot);
  std::int64_t fixed = 0;
  for (const SlotLoad& load : slot.loads) fixed = std::max(fixed, load.fixed);
  const double mean = std::accumulate(after.begin(), after.end(), 0.0) / static_cast<double>(after.size());
  const double strip = static_cast<double>(kExchangeStrip * slot.queries);
  REQUIRE(static_cast<double>(largest(after)) <= std::max(mean + strip, static_cast<double>(fixed)));
}

/// The fewest pairs in which owners' work fits the helpers' room: all sets of pairs, each judged by Hall's
/// condition (what any owners give must fit the helpers that any of them is paired with).
int fewest_pairs(const std::vector<std::int64_t>& gives, const std::vector<std::int64_t>& rooms) {
  const int owners = static_cast<int>(gives.size());
  const int helpers = static_cast<int>(rooms.size());
  int best = owners * helpers + 1;
  for (unsigned pairs = 0; pairs < 1U << (owners * helpers); ++pairs) {
    if (std::popcount(pairs) >= best) continue;
    bool fits = true;
    for (unsigned chosen = 1; fits && chosen < 1U << owners; ++chosen) {
      std::int64_t give = 0;
      unsigned reached = 0;
      for (int owner = 0; owner < owners; ++owner) {
        if ((chosen >> owner & 1U) == 0) continue;
        give += gives[owner];
        reached |= pairs >> (owner * helpers) & ((1U << helpers) - 1);
      }
      std::int64_t room = 0;
      for (int helper = 0; helper < helpers; ++helper)
        if ((reached >> helper & 1U) != 0) room += rooms[helper];
      fits = give <= room;
    }
    if (fits) best = std::popcount(pairs);
  }
  return best;
}

}  // namespace

TEST_CASE("balanced exchange keeps its bound in every slot of random schedules", "[unit]") {
  Dice dice(21);
  for (int round = 0; round < 60; ++round) {
    const auto spec = random_lockstep_spec(dice, 32, 4);
    const std::int64_t slice_tokens = dice.roll(0, 1) == 0 ? 128 * dice.roll(1, 64) : dice.roll(1, 3000);
    INFO(format_text(build(spec)).substr(0, 60) << " slices of " << slice_tokens);
    const auto plan = plan_exchange(build(spec), Exchange::kBalanced, slice_tokens);
    for (const ExchangeSlot& slot : plan.slots) {
      require_sound(slot);
      require_balanced(slot);
    }
  }
}

TEST_CASE("pairwise exchange leaves a slice of spread where all devices work on one microbatch", "[unit]") {
  for (const int p : {2, 4, 6, 8})
    for (const int n : {p, 2 * p, 4 * p}) {
      const auto schedule = build({.pipeline = p, .microbatches = 2, .slices = n});
      constexpr std::int64_t kTokens = 256;
      std::int64_t widest_across = 0;
      for (const ExchangeSlot& slot : plan_exchange(schedule, Exchange::kPairwise, kTokens).slots) {
        require_sound(slot);
        std::set<int> microbatches;
        std::vector<std::int64_t> active;
        const auto after = work_with_helps(slot);
        for (std::size_t i = 0; i < slot.loads.size(); ++i) {
          const SlotLoad& load = slot.loads[i];
          if (load.action < 0) {
            REQUIRE(after[i] == 0);
            continue;
          }
          microbatches.insert(schedule.devices[load.device][load.action].microbatch);
          active.push_back(after[i]);
        }
        const auto [least, most] = std::minmax_element(active.begin(), active.end());
        const std::int64_t spread = (*most - *least) / (kTokens * kTokens);
        INFO("p " << p << " n " << n << " slot " << active.size());
        if (std::ssize(active) < p) continue;
        if (microbatches.size() == 1) REQUIRE(spread <= 1);
        if (microbatches.size() == 2) widest_across = std::max(widest_across, spread);
      }
      REQUIRE(widest_across == (p == 2 ? 1 : (n - p) / 2 + 1));
    }
}

TEST_CASE("helps are as few as in any assignment of the same work, or one more", "[unit]") {
  Dice dice(22);
  int more = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    constexpr std::int64_t kQueries = 64;
    std::vector<std::int64_t> keys(dice.roll(2, 6));
    for (auto& count : keys) count = dice.roll(-1, 30) * kQueries;
    auto slot = slot_of(kQueries, keys);
    plan_helps(Exchange::kBalanced, slot);
    require_sound(slot);
    require_balanced(slot);
    std::map<int, std::int64_t> gives;
    for (const Help& help : slot.helps) gives[help.owner] += help.keys / kExchangeStrip;
    const auto work = work_alone(slot);
    std::vector<std::int64_t> amounts;
    for (const auto& [owner, strips] : gives) amounts.push_back(strips);
    std::vector<std::int64_t> rooms;
    const double mean = std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      if (static_cast<double>(work[i]) <= mean)
        rooms.push_back(
            static_cast<std::int64_t>((mean - static_cast<double>(work[i])) / (kExchangeStrip * kQueries)) +
            1);
    if (amounts.empty()) continue;
    const int best = fewest_pairs(amounts, rooms);
    INFO("round " << round);
    REQUIRE(std::ssize(slot.helps) <= best + 1);
    more += std::ssize(slot.helps) > best ? 1 : 0;
  }
  REQUIRE(more <= kRounds / 10);
}

TEST_CASE("helps of small slots are as computed by hand", "[unit]") {
  auto slot = slot_of(128, {0, 512, 128, -1});
  plan_helps(Exchange::kPairwise, slot);
  REQUIRE(slot.helps == std::vector<Help>{{.owner = 1, .helper = 0, .keys = 256}});
  // Work in strips of 128 keys: 0, 4, 1, and about a half each for their own slice; the mean is 1.6.
  plan_helps(Exchange::kBalanced, slot);
  REQUIRE(slot.helps == std::vector<Help>{{.owner = 1, .helper = 3, .keys = 256}});
  slot = slot_of(128, {256, 256});
  for (const auto exchange : {Exchange::kNone, Exchange::kPairwise, Exchange::kBalanced}) {
    plan_helps(exchange, slot);
    REQUIRE(slot.helps.empty());
  }
}

TEST_CASE("every forward and backward is in one slot, with the devices that idle beside it", "[unit]") {
  const auto schedule = build({.pipeline = 3, .virtual_stages = 2, .microbatches = 2, .slices = 6});
  std::map<std::pair<int, int>, int> seen;
  int idle = 0;
  for (const ExchangeSlot& slot : exchange_slots(schedule, 256)) {
    std::set<int> devices;
    for (const SlotLoad& load : slot.loads) {
      REQUIRE(devices.insert(load.device).second);
      if (load.action < 0) {
        REQUIRE(load.keys + load.fixed == 0);
        ++idle;
        continue;
      }
      ++seen[{load.device, load.action}];
      const Action& action = schedule.devices[load.device][load.action];
      REQUIRE((action.kind == ActionKind::kForward) == slot.forward);
      REQUIRE(load.keys == action.slice * 256);
    }
  }
  REQUIRE(seen.size() == 3 * 2 * 2 * 2 * 6);
  for (const auto& [place, times] : seen) REQUIRE(times == 1);
  REQUIRE(idle > 0);
}

TEST_CASE("schedules that are not in lock-step cannot exchange", "[unit]") {
  REQUIRE_THROWS_WITH(
      plan_exchange(build({.kind = Kind::kOneFOneB, .pipeline = 2}), Exchange::kPairwise, 64),
      "1f1b does not have all devices in forwards or all in backwards at the same time, which the "
      "exchange of attention context needs (expected slimpipe with warmup_slope 2, or terapipe)");
  REQUIRE_THROWS_AS(
      plan_exchange(build({.pipeline = 2, .slices = 4, .warmup_slope = 1}), Exchange::kBalanced, 64),
      InputError);
}

TEST_CASE("slots are in an order in which every action finds its input and follows its device's list",
          "[unit]") {
  Dice dice(23);
  for (int round = 0; round < 40; ++round) {
    const auto schedule = build(random_lockstep_spec(dice, 12, 4));
    const Spec& spec = schedule.spec;
    INFO(format_text(schedule).substr(0, 60));
    std::vector<int> next(spec.pipeline);
    std::set<std::tuple<bool, int, int, int>> done;  // forward, stage, microbatch, slice
    for (const ExchangeSlot& slot : exchange_slots(schedule, 8)) {
      std::vector<std::tuple<bool, int, int, int>> now;
      for (const SlotLoad& load : slot.loads) {
        if (load.action < 0) continue;
        REQUIRE(load.action == next[load.device]++);
        const Action& action = schedule.devices[load.device][load.action];
        const int stage = schedule.stage_of[load.device][action.chunk];
        const int giver = stage + (slot.forward ? -1 : 1);
        if (giver >= 0 && giver < spec.stages())
          REQUIRE(done.count({slot.forward, giver, action.microbatch, action.slice}) == 1);
        if (!slot.forward) REQUIRE(done.count({true, stage, action.microbatch, action.slice}) == 1);
        now.emplace_back(slot.forward, stage, action.microbatch, action.slice);
      }
      done.insert(now.begin(), now.end());
    }
    for (int device = 0; device < spec.pipeline; ++device)
      REQUIRE(next[device] == std::ssize(schedule.devices[device]));
  }
}

TEST_CASE("exchange lowers the bubble of a 13B model at 256K tokens to the stated figures", "[unit]") {
  // Operations of one layer: projections and feed-forward per token, attention per (query, key) pair.
  constexpr double kHidden = 5120;
  constexpr double kFfn = 13824;
  constexpr double kPerToken = 8 * kHidden * kHidden + 6 * kHidden * kFfn;
  constexpr double kPerPair = 4 * kHidden;
  constexpr std::int64_t kSequence = 262144;
  const auto bubble = [&](int v, Exchange exchange) {
    constexpr int kSlices = 32;
    const auto schedule = build({.pipeline = 8, .virtual_stages = v, .microbatches = 4, .slices = kSlices});
    constexpr std::int64_t kTokens = kSequence / kSlices;
    const auto exchanging = with_exchange(schedule, exchange, kTokens);
    return simulate(exchanging, slice_cost_model({.linear = kPerToken * kTokens, .attention = kPerPair},
                                                 kTokens, exchanging.exchange))
        .bubble;
  };
  CHECK(bubble(1, Exchange::kNone) == Approx(0.181).epsilon(0.01));
  CHECK(bubble(1, Exchange::kPairwise) <= 0.111);
  CHECK(bubble(1, Exchange::kBalanced) <= 0.056);
  CHECK(bubble(5, Exchange::kNone) == Approx(0.089).epsilon(0.01));
  CHECK(bubble(5, Exchange::kPairwise) <= 0.044);
  CHECK(bubble(5, Exchange::kBalanced) <= 0.014);
  const auto plain =
      simulate(build({.kind = Kind::kOneFOneB, .pipeline = 8, .microbatches = 4}),
               slice_cost_model({.linear = kPerToken * kSequence, .attention = kPerPair}, kSequence));
  CHECK(plain.bubble == Approx(0.636).epsilon(0.01));
}
