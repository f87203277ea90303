#include "slimpipe/schedule/exchange.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "slimpipe/core/check.h"

namespace slimpipe::schedule {
namespace {

std::int64_t work_of(const SlotLoad& load, std::int64_t queries) {
  return load.keys * queries + load.fixed;
}

/// Pairs the k-th longest with the k-th shortest.
void plan_pairwise(ExchangeSlot& slot) {
  std::vector<SlotLoad> active;
  for (const SlotLoad& load : slot.loads)
    if (load.action >= 0) active.push_back(load);
  std::stable_sort(active.begin(), active.end(),
                   [](const SlotLoad& a, const SlotLoad& b) { return a.keys > b.keys; });
  for (std::size_t k = 0; k < active.size() / 2; ++k) {
    const SlotLoad& owner = active[k];
    const SlotLoad& helper = active[active.size() - 1 - k];
    const std::int64_t slices = (owner.keys - helper.keys) / slot.queries / 2;
    if (slices > 0) slot.helps.push_back({owner.device, helper.device, 0, slices * slot.queries});
  }
}

/// The level that all could be brought to if work came in any size: the mean of those that can be lowered to
/// it, where some stay above it with what they cannot give away.
std::int64_t target_level(const ExchangeSlot& slot) {
  std::vector<std::int64_t> fixed;
  std::int64_t sum = 0;
  for (const SlotLoad& load : slot.loads) {
    fixed.push_back(load.fixed);
    sum += work_of(load, slot.queries);
  }
  std::sort(fixed.begin(), fixed.end(), std::greater<>());
  auto count = std::ssize(fixed);
  for (const std::int64_t above : fixed) {
    if (count == 1 || above * count <= sum) break;
    sum -= above;
    --count;
  }
  return (sum + count - 1) / count;
}

/// Keys of an owner's prefix that it gives away, or that a helper has room for.
struct Share {
  int device = 0;
  std::int64_t keys = 0;
  std::int64_t work = 0;  ///< of a helper, with what it was given
};

/// Each owner's keys go to the helper with the least room that takes them all, of equal ones to that with the
/// least work; where none does, to the one with the most room, in whole strips until it is full. Every help
/// but an owner's last fills a helper, so there are at most owners + helpers - 1 of them.
class KeyAssignment {
 public:
  KeyAssignment(ExchangeSlot& slot, std::vector<Share> helpers) : slot_(slot), helpers_(std::move(helpers)) {}

  void give_away(const Share& owner) {
    std::int64_t first = 0;
    while (first < owner.keys) {
      const std::int64_t left = owner.keys - first;
      Share& helper = choose(left);
      const std::int64_t keys = helper.keys >= left ? left : helper.keys / kExchangeStrip * kExchangeStrip;
      SLIMPIPE_CHECK(keys > 0, "{} keys of device {} find no helper", left, owner.device);
      slot_.helps.push_back({owner.device, helper.device, first, keys});
      helper.keys -= keys;
      helper.work += keys * slot_.queries;
      first += keys;
    }
  }

 private:
  static bool tighter(const Share& a, const Share& b) {
    return std::pair(a.keys / kExchangeStrip, a.work) < std::pair(b.keys / kExchangeStrip, b.work);
  }

  Share& choose(std::int64_t keys) {
    SLIMPIPE_CHECK(!helpers_.empty(), "nobody to help");
    Share* fitting = nullptr;
    Share* roomiest = &helpers_.front();
    for (Share& helper : helpers_) {
      if (helper.keys >= keys && (fitting == nullptr || tighter(helper, *fitting))) fitting = &helper;
      if (helper.keys > roomiest->keys) roomiest = &helper;
    }
    return fitting != nullptr ? *fitting : *roomiest;
  }

  ExchangeSlot& slot_;
  std::vector<Share> helpers_;
};

/// Owners come down to less than a strip above the level, or give all their keys; helpers have room up to a
/// strip above it, of which less than a strip stays unused: so all that is given finds a place.
void plan_balanced(ExchangeSlot& slot) {
  const std::int64_t level = target_level(slot);
  const std::int64_t strip = kExchangeStrip * slot.queries;
  std::vector<Share> owners;
  std::vector<Share> helpers;
  for (const SlotLoad& load : slot.loads) {
    const std::int64_t work = work_of(load, slot.queries);
    if (work > level) {
      const std::int64_t keys = std::min((work - level) / strip * kExchangeStrip, load.keys);
      if (keys > 0) owners.push_back({load.device, keys, 0});
    } else {
      helpers.push_back({load.device, (level + strip - work) / slot.queries, work});
    }
  }
  // The largest first: what is left for the small ones fits anywhere.
  std::stable_sort(owners.begin(), owners.end(),
                   [](const Share& a, const Share& b) { return a.keys > b.keys; });
  KeyAssignment assignment(slot, std::move(helpers));
  for (const Share& owner : owners) assignment.give_away(owner);
}

void require_lockstep(const Spec& spec) {
  const auto problems = exchange_problems(spec);
  if (!problems.empty()) throw_input_error("{}", problems.front());
}

/// Slots by number, forwards or backwards.
std::vector<ExchangeSlot> empty_slots(const Spec& spec, bool forward, std::int64_t slice_tokens) {
  const std::size_t count =
      static_cast<std::size_t>(spec.microbatches) * spec.slices * spec.virtual_stages + spec.pipeline - 1;
  ExchangeSlot empty{.forward = forward, .queries = slice_tokens};
  for (int device = 0; device < spec.pipeline; ++device) empty.loads.push_back({.device = device});
  return std::vector<ExchangeSlot>(count, empty);
}

/// As a schedule's side table has them.
std::vector<Help> helps_with_actions(const Schedule& schedule, const ExchangeSlot& slot) {
  std::vector<Help> helps = slot.helps;
  for (Help& help : helps) help.action = schedule.devices[help.owner][slot.loads[help.owner].action];
  std::sort(helps.begin(), helps.end(), [](const Help& a, const Help& b) {
    return std::tuple(a.owner, a.helper, a.first_key) < std::tuple(b.owner, b.helper, b.first_key);
  });
  return helps;
}

}  // namespace

std::vector<std::string> exchange_problems(const Spec& spec) {
  if (spec.kind == Kind::kTeraPipe || (spec.kind == Kind::kSlimPipe && spec.warmup_slope == 2)) return {};
  std::string name(name_of(spec.kind));
  if (spec.kind == Kind::kSlimPipe) name += " with warmup_slope " + std::to_string(spec.warmup_slope);
  return {
      name +
      " does not have all devices in forwards or all in backwards at the same time, which the exchange of "
      "attention context needs (expected slimpipe with warmup_slope 2, or terapipe)"};
}

std::vector<ExchangeSlot> exchange_slots(const Schedule& schedule, std::int64_t slice_tokens) {
  const Spec& spec = schedule.spec;
  require_lockstep(spec);
  auto forwards = empty_slots(spec, true, slice_tokens);
  auto backwards = empty_slots(spec, false, slice_tokens);
  for (int device = 0; device < spec.pipeline; ++device) {
    int forward = device;
    int backward = spec.pipeline - 1 - device;
    for (int index = 0; index < std::ssize(schedule.devices[device]); ++index) {
      const Action& action = schedule.devices[device][index];
      auto& slot = action.kind == ActionKind::kForward ? forwards[forward++] : backwards[backward++];
      slot.loads[device] = {.device = device,
                            .action = index,
                            .keys = action.slice * slice_tokens,
                            .fixed = slice_tokens * (slice_tokens + 1) / 2};
    }
  }
  // Forward slots before the first backward slot; then they alternate.
  const std::size_t warmup =
      spec.kind == Kind::kTeraPipe
          ? forwards.size()
          : static_cast<std::size_t>(spec.slices) * spec.virtual_stages + spec.pipeline - 1;
  std::vector<ExchangeSlot> slots;
  for (std::size_t number = 0; number < warmup + backwards.size(); ++number) {
    if (number < forwards.size()) slots.push_back(std::move(forwards[number]));
    if (number + 1 >= warmup && number + 1 - warmup < backwards.size())
      slots.push_back(std::move(backwards[number + 1 - warmup]));
  }
  return slots;
}

void plan_helps(Exchange exchange, ExchangeSlot& slot) {
  slot.helps.clear();
  if (exchange == Exchange::kPairwise) plan_pairwise(slot);
  if (exchange == Exchange::kBalanced) plan_balanced(slot);
  std::sort(slot.helps.begin(), slot.helps.end(), [](const Help& a, const Help& b) {
    return std::pair(a.owner, a.first_key) < std::pair(b.owner, b.first_key);
  });
}

ExchangePlan plan_exchange(const Schedule& schedule, Exchange exchange, std::int64_t slice_tokens) {
  ExchangePlan plan{.exchange = exchange, .slots = exchange_slots(schedule, slice_tokens)};
  for (ExchangeSlot& slot : plan.slots) plan_helps(exchange, slot);
  return plan;
}

Schedule with_exchange(const Schedule& schedule, Exchange exchange, std::int64_t slice_tokens, bool early) {
  if (exchange == Exchange::kNone) return schedule;
  Schedule result = schedule;
  result.exchange = {.slice_tokens = slice_tokens, .early = early, .slots = {}};
  for (auto& actions : result.devices) actions.clear();
  for (const ExchangeSlot& slot : plan_exchange(schedule, exchange, slice_tokens).slots) {
    const int arg = slot.helps.empty() ? -1 : static_cast<int>(result.exchange.slots.size());
    if (arg >= 0) result.exchange.slots.push_back(helps_with_actions(schedule, slot));
    for (const SlotLoad& load : slot.loads) {
      const bool takes_part = std::any_of(slot.helps.begin(), slot.helps.end(), [&](const Help& help) {
        return help.owner == load.device || help.helper == load.device;
      });
      if (load.action < 0 && !takes_part) continue;
      auto& actions = result.devices[load.device];
      Action action =
          load.action < 0 ? Action{.kind = ActionKind::kHelp} : schedule.devices[load.device][load.action];
      if (takes_part) action.arg = arg;
      actions.push_back(action);
    }
  }
  if (result.exchange.slots.empty()) result.exchange = {};
  return result;
}

std::vector<std::int64_t> work_alone(const ExchangeSlot& slot) {
  std::vector<std::int64_t> work;
  for (const SlotLoad& load : slot.loads) work.push_back(work_of(load, slot.queries));
  return work;
}

std::vector<std::int64_t> work_with_helps(const ExchangeSlot& slot) {
  std::vector<std::int64_t> work = work_alone(slot);
  for (std::size_t i = 0; i < work.size(); ++i)
    for (const Help& help : slot.helps) {
      if (help.owner == slot.loads[i].device) work[i] -= help.keys * slot.queries;
      if (help.helper == slot.loads[i].device) work[i] += help.keys * slot.queries;
    }
  return work;
}

}  // namespace slimpipe::schedule
