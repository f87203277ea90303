// Whether the table of helps and the actions' args agree.

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "schedule/proof.h"

namespace slimpipe::schedule {
namespace {

using Findings = std::vector<std::string>;

bool in_range(const Spec& spec, const Help& help) {
  const auto within = [](int value, int size) { return value >= 0 && value < size; };
  const Action& action = help.action;
  return within(help.owner, spec.pipeline) && within(help.helper, spec.pipeline) &&
         within(action.chunk, spec.virtual_stages) && within(action.microbatch, spec.microbatches) &&
         within(action.slice, spec.slices) && action.arg == -1 &&
         (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward);
}

std::string describe(std::size_t slot, const Help& help) {
  return fmt::format("help of device {} for {} of device {} in exchange slot {}", help.helper,
                     to_string(help.action), help.owner, slot);
}

void check_help(const Schedule& schedule, std::size_t slot, const Help& help, Findings& findings) {
  if (!in_range(schedule.spec, help)) {
    findings.push_back(fmt::format("{}: no such devices or action", describe(slot, help)));
    return;
  }
  const std::int64_t prefix = help.action.slice * schedule.exchange.slice_tokens;
  if (help.first_key < 0 || help.keys <= 0 || help.first_key > prefix - help.keys)
    findings.push_back(fmt::format("{}: keys {}+{} do not lie before the slice, which begins at {}",
                                   describe(slot, help), help.first_key, help.keys, prefix));
}

bool overlap(const Help& a, const Help& b) {
  return a.owner == b.owner && a.first_key < b.first_key + b.keys && b.first_key < a.first_key + a.keys;
}

void check_slot(const Schedule& schedule, std::size_t slot, Findings& findings) {
  const std::vector<Help>& helps = schedule.exchange.slots[slot];
  for (const Help& help : helps) {
    check_help(schedule, slot, help, findings);
    for (const Help& other : helps) {
      if (help.owner == other.helper)
        findings.push_back(
            fmt::format("device {} is owner and helper in exchange slot {}", help.owner, slot));
      if (help.owner == other.owner && help.action != other.action)
        findings.push_back(fmt::format("device {} is owner of {} and {} in exchange slot {}", help.owner,
                                       to_string(help.action), to_string(other.action), slot));
      if (help.action.kind != other.action.kind)
        findings.push_back(fmt::format("exchange slot {} has forwards and backwards", slot));
      if (&help != &other && overlap(help, other))
        findings.push_back(fmt::format("{} overlaps with another", describe(slot, help)));
      if (!findings.empty()) return;
    }
  }
}

/// Whether `action` of `device` is what a slot it takes part in says: the owner's, or any of the slot's kind.
bool fits(const std::vector<Help>& helps, int device, const Action& action) {
  return std::any_of(helps.begin(), helps.end(), [&](const Help& help) {
    if (help.helper == device) return action.kind == ActionKind::kHelp || action.kind == help.action.kind;
    Action own = action;
    own.arg = -1;
    return help.owner == device && own == help.action;
  });
}

/// Every participant of a slot takes part once, and nobody else.
void check_participants(const Schedule& schedule, Findings& findings) {
  const auto& slots = schedule.exchange.slots;
  std::set<std::pair<std::size_t, int>> missing;  // (slot, device)
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    for (const Help& help : slots[slot]) missing.insert({{slot, help.owner}, {slot, help.helper}});
  for (int device = 0; device < std::ssize(schedule.devices); ++device)
    for (const Action& action : schedule.devices[device]) {
      if (action.arg < 0) continue;
      if (!fits(slots[action.arg], device, action) || missing.erase({action.arg, device}) == 0)
        findings.push_back(fmt::format("device {}: {} has no part in exchange slot {}", device,
                                       to_string(action), action.arg));
    }
  for (const auto& [slot, device] : missing)
    findings.push_back(fmt::format("device {} has no action of exchange slot {}", device, slot));
}

}  // namespace

std::vector<std::string> exchange_findings(const Schedule& schedule) {
  const HelpTable& table = schedule.exchange;
  Findings findings;
  if (table.slots.empty()) return findings;
  if (!schedule.training) return {"a forward-only schedule has an exchange of attention context"};
  if (table.slice_tokens <= 0) return {fmt::format("exchange of slices of {} tokens", table.slice_tokens)};
  for (std::size_t slot = 0; slot < table.slots.size(); ++slot) {
    if (table.slots[slot].empty()) findings.push_back(fmt::format("exchange slot {} has no help", slot));
    check_slot(schedule, slot, findings);
    if (!findings.empty()) return findings;
  }
  check_participants(schedule, findings);
  return findings;
}

}  // namespace slimpipe::schedule
