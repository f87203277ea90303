#pragma once
// The attention context exchange (SlimPipe, arXiv 2504.14519, section 4.3): who computes attention for whom.
//
// Slices of a sequence attend to prefixes of different length, so devices that work at the same time on
// different slices do not finish together. A device with more attention work than the others, the owner,
// has a range of its slice's K,V prefix attended to by one with less, the helper, which returns the partial
// result. A plan says which ranges, for every slot of the schedule; it holds for every layer of the slot's
// chunks.

#include <cstdint>
#include <string>
#include <vector>

#include "slimpipe/schedule/schedule.h"
#include "slimpipe/schedule/simulate.h"

namespace slimpipe::schedule {

/// Everything wrong with a spec that is to have an exchange: it must be in lock-step, slimpipe with δ = 2, or
/// terapipe.
[[nodiscard]] std::vector<std::string> exchange_problems(const Spec& spec);

/// Attention of one device in a slot. Work counts (query, key) pairs of one head and layer.
struct SlotLoad {
  int device = 0;
  int action = -1;         ///< index into the device's list, -1: idle
  std::int64_t keys = 0;   ///< of the slice's prefix, tokens before the slice: what can be moved
  std::int64_t fixed = 0;  ///< work that cannot: the slice's own causal triangle
};

/// What happens at one time: forwards alone or backwards alone, one on each device or none.
///
/// With δ = 2 the k-th forward of device r is in forward slot r + k and its j-th backward in backward slot
/// p - 1 - r + j, and backward slot b comes after forward slot b + n·v + p - 2 and before the next, on all
/// devices alike: lock-step. In TeraPipe backward slots come after all forward slots.
struct ExchangeSlot {
  bool forward = true;
  std::int64_t queries = 0;     ///< tokens of a slice
  std::vector<SlotLoad> loads;  ///< [device]
  std::vector<Help> helps;      ///< by owner and first key; a device is owner, helper or neither, never both
};

struct ExchangePlan {
  Exchange exchange = Exchange::kNone;
  std::vector<ExchangeSlot> slots;  ///< in order
};

/// Keys of the strip that `balanced` cuts at: the attention kernel's tile.
inline constexpr std::int64_t kExchangeStrip = 128;

/// The slots of a schedule whose slices have `slice_tokens` tokens. Throws InputError unless it is in
/// lock-step: slimpipe with δ = 2, or terapipe.
[[nodiscard]] std::vector<ExchangeSlot> exchange_slots(const Schedule& schedule, std::int64_t slice_tokens);

/// kPairwise (the paper): devices of a slot by length of prefix, the k-th longest with the k-th shortest, and
/// half the difference in whole slices moves. Idle devices take no part.
///
/// kBalanced: any device to any, in strips of kExchangeStrip keys from the beginning of the sequence; idle
/// devices take part. Afterwards the largest work of the slot is at most max(mean + one strip, largest
/// `fixed`), and there are fewer pairs than owners and helpers together.
void plan_helps(Exchange exchange, ExchangeSlot& slot);

/// The slots with their helps. Throws InputError as exchange_slots does.
[[nodiscard]] ExchangePlan plan_exchange(const Schedule& schedule, Exchange exchange,
                                         std::int64_t slice_tokens);

/// The schedule with the exchange in it: helps as its side table, an arg in the actions of owners and
/// helpers, a kHelp for helpers that have no action in the slot. `early` as in HelpTable. Throws InputError
/// as exchange_slots does.
[[nodiscard]] Schedule with_exchange(const Schedule& schedule, Exchange exchange, std::int64_t slice_tokens,
                                     bool early = true);

/// Work of each entry of slot.loads, before and with its helps.
[[nodiscard]] std::vector<std::int64_t> work_alone(const ExchangeSlot& slot);
[[nodiscard]] std::vector<std::int64_t> work_with_helps(const ExchangeSlot& slot);

/// Times of one slice in one stage.
struct SliceCost {
  double linear = 0;                ///< forward of all but attention
  double attention = 0;             ///< forward of one (query, key) pair in all layers of the stage
  double backward_linear = 2;       ///< times `linear`, inputs and weights together
  double backward_attention = 2.5;  ///< times `attention`
};
/// For simulate(), of a stage of one layer step each and of a schedule with this exchange: an owner's action
/// takes as long as what it keeps and what it waits for, a helper's as long as its own and what it does for
/// others. Split backwards have attention in the input part and half of the linear part in either.
[[nodiscard]] CostModel slice_cost_model(const SliceCost& cost, std::int64_t slice_tokens,
                                         const HelpTable& exchange = {});

}  // namespace slimpipe::schedule
