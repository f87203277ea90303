#include "slimpipe/schedule/validate.h"

#include <algorithm>
#include <fmt/format.h>

#include "schedule/proof.h"

namespace slimpipe::schedule {
namespace {

class Findings {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    ++count_;
    if (count_ <= kShown) list_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  [[nodiscard]] bool any() const { return count_ > 0; }
  [[nodiscard]] std::vector<std::string> take() {
    if (count_ > kShown) list_.push_back(fmt::format("and {} more", count_ - kShown));
    return std::move(list_);
  }

 private:
  static constexpr int kShown = 20;
  int count_ = 0;
  std::vector<std::string> list_;
};

void check_placement(const Schedule& schedule, Findings& findings) {
  const Spec& spec = schedule.spec;
  if (std::ssize(schedule.devices) != spec.pipeline || std::ssize(schedule.stage_of) != spec.pipeline) {
    findings.add("{} action lists and {} stage lists: expected one of each for the {} devices",
                 schedule.devices.size(), schedule.stage_of.size(), spec.pipeline);
    return;
  }
  std::vector<int> places(spec.stages());
  for (int device = 0; device < spec.pipeline; ++device) {
    const auto& stages = schedule.stage_of[device];
    if (std::ssize(stages) != spec.virtual_stages)
      findings.add("device {} holds {} stages: expected {}", device, stages.size(), spec.virtual_stages);
    for (const int stage : stages) {
      if (stage < 0 || stage >= spec.stages())
        findings.add("device {} holds stage {}: expected 0 to {}", device, stage, spec.stages() - 1);
      else if (++places[stage] == 2)
        findings.add("stage {} has more than one place", stage);
    }
  }
}

/// How often a slice of a chunk has its forward, the input part and the weight part of its backward.
struct Counts {
  int forward = 0;
  int input = 0;
  int weight = 0;
};

bool in_range(const Schedule& schedule, const Action& action) {
  const Spec& spec = schedule.spec;
  const auto within = [](int value, int size) { return value >= 0 && value < size; };
  const int slots = static_cast<int>(schedule.exchange.slots.size());
  if (action.kind == ActionKind::kHelp)
    return action.chunk == 0 && action.microbatch == 0 && action.slice == 0 && within(action.arg, slots);
  return within(action.chunk, spec.virtual_stages) && within(action.microbatch, spec.microbatches) &&
         within(action.slice, spec.slices) && action.kind <= ActionKind::kBackwardWeight &&
         (action.arg == -1 || within(action.arg, slots));
}

void count(const Action& action, Counts& counts) {
  if (action.kind == ActionKind::kForward) ++counts.forward;
  if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) ++counts.input;
  if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) ++counts.weight;
}

void check_counts(const Schedule& schedule, int device, Findings& findings) {
  const Spec& spec = schedule.spec;
  const std::size_t slices = spec.slices;
  std::vector<Counts> counts(slices * spec.microbatches * spec.virtual_stages);
  const auto index = [&](const Action& action) {
    return (static_cast<std::size_t>(action.chunk) * spec.microbatches + action.microbatch) * slices +
           action.slice;
  };
  for (const auto& action : schedule.devices[device]) {
    if (in_range(schedule, action)) {
      if (action.kind != ActionKind::kHelp) count(action, counts[index(action)]);
    } else {
      findings.add("device {}: action kind {}, chunk {}, microbatch {}, slice {}, arg {} does not exist here",
                   device, static_cast<int>(action.kind), action.chunk, action.microbatch, action.slice,
                   action.arg);
    }
  }
  const int backwards = schedule.training ? 1 : 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i].forward == 1 && counts[i].input == backwards && counts[i].weight == backwards) continue;
    findings.add(
        "device {}: chunk {}, microbatch {}, slice {} has {} forwards, {} backwards for inputs, {} for "
        "weights: "
        "expected 1, {}, {}",
        device, i / slices / spec.microbatches, i / slices % spec.microbatches, i % slices, counts[i].forward,
        counts[i].input, counts[i].weight, backwards, backwards);
  }
}

/// Follows one chunk of a device through its list. Faults after the first are consequences of it.
class ChunkOrder {
 public:
  explicit ChunkOrder(const Spec& spec) : slices_(spec.slices) {}

  /// What is wrong with doing `action` now, empty if nothing.
  std::string follow(const Action& action) {
    std::string fault;
    if (action.kind == ActionKind::kForward) {
      const int microbatch = forwards_ / slices_;
      const int slice = forwards_ % slices_;
      if (action.microbatch != microbatch || action.slice != slice)
        fault = fmt::format("the next forward is microbatch {}, slice {}", microbatch, slice);
      ++forwards_;
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) {
      if (forwards_ <= action.microbatch * slices_ + action.slice) fault = "its forward comes later";
      follow_backward(action, inputs_++, fault);
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
      if (weights_ >= inputs_) fault = "its backward for inputs comes later";
      follow_backward(action, weights_++, fault);
    }
    return fault;
  }

 private:
  void follow_backward(const Action& action, int number, std::string& fault) const {
    const int microbatch = number / slices_;
    const int slice = slices_ - 1 - number % slices_;
    if (fault.empty() && (action.microbatch != microbatch || action.slice != slice))
      fault = fmt::format("the next backward is microbatch {}, slice {}", microbatch, slice);
  }

  int slices_;
  int forwards_ = 0;
  int inputs_ = 0;
  int weights_ = 0;
};

void check_order(const Schedule& schedule, int device, Findings& findings) {
  const auto& actions = schedule.devices[device];
  std::vector<ChunkOrder> chunks(schedule.spec.virtual_stages, ChunkOrder(schedule.spec));
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind == ActionKind::kHelp) continue;
    const auto fault = chunks[actions[i].chunk].follow(actions[i]);
    if (fault.empty()) continue;
    findings.add("device {}: {} (action {}) is out of order: {}", device, to_string(actions[i]), i, fault);
    return;
  }
}

/// Where two neighbouring stages are on one device, the later one's forward needs the earlier one's output,
/// and the earlier one's backward the later one's gradient.
void check_handover(const Schedule& schedule, int device, Findings& findings) {
  const auto& stages = schedule.stage_of[device];
  const auto& actions = schedule.devices[device];
  const auto chunk_of = [&](int stage) {
    const auto found = std::find(stages.begin(), stages.end(), stage);
    return found == stages.end() ? -1 : static_cast<int>(found - stages.begin());
  };
  std::vector<std::int64_t> forwards(stages.size());  // done, by chunk; their order is known to be right
  std::vector<std::int64_t> backwards(stages.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.kind == ActionKind::kBackwardWeight || action.kind == ActionKind::kHelp) continue;
    const bool forward = action.kind == ActionKind::kForward;
    auto& done = forward ? forwards : backwards;
    const int giver = chunk_of(stages[action.chunk] + (forward ? -1 : 1));
    if (giver >= 0 && done[giver] <= done[action.chunk]) {
      findings.add("device {}: {} (action {}) is out of order: the {} that it needs of stage {} comes later",
                   device, to_string(action), i, forward ? "forward" : "backward", stages[giver]);
      return;
    }
    ++done[action.chunk];
  }
}

/// Whether what `from` sends on the channel is what `to` receives.
bool same_message(const Schedule& schedule, const Channel& channel, const Action& from, const Action& to) {
  if (is_exchange(channel.payload)) return from.arg == to.arg;
  const int stage_change = channel.payload == Payload::kActivation ? 1 : -1;
  const int from_stage = schedule.stage_of[channel.source][from.chunk];
  const int to_stage = schedule.stage_of[channel.destination][to.chunk];
  return from.microbatch == to.microbatch && from.slice == to.slice && from_stage + stage_change == to_stage;
}

void check_channel(const Schedule& schedule, const Channel& channel, Findings& findings) {
  const auto& sender = schedule.devices[channel.source];
  const auto& receiver = schedule.devices[channel.destination];
  if (channel.sends.size() != channel.receives.size()) {
    findings.add("device {} sends {} {}s to device {}, which receives {}", channel.source,
                 channel.sends.size(), name_of(channel.payload), channel.destination,
                 channel.receives.size());
    return;
  }
  for (std::size_t k = 0; k < channel.sends.size(); ++k) {
    const auto& from = sender[channel.sends[k]];
    const auto& to = receiver[channel.receives[k]];
    if (same_message(schedule, channel, from, to)) continue;
    findings.add("{} {} from device {} to device {} is sent by {} and received by {}",
                 name_of(channel.payload), k, channel.source, channel.destination, to_string(from),
                 to_string(to));
    return;
  }
}

}  // namespace

Proof prove(const Schedule& schedule) {
  if (auto found = problems(schedule.spec); !found.empty()) return {.findings = std::move(found), .map = {}};
  Findings findings;
  const auto failed = [&] { return Proof{.findings = findings.take(), .map = {}}; };
  check_placement(schedule, findings);
  if (findings.any()) return failed();
  for (const auto check : {check_counts, check_order, check_handover}) {
    for (int device = 0; device < schedule.spec.pipeline; ++device) check(schedule, device, findings);
    if (findings.any()) return failed();
  }
  for (const auto& finding : exchange_findings(schedule)) findings.add("{}", finding);
  if (findings.any()) return failed();
  Proof proof{.findings = {}, .map = connect(schedule)};
  for (const auto& channel : proof.map.channels) check_channel(schedule, channel, findings);
  if (findings.any()) return failed();
  for (const auto& wait : plan_outstanding_sends(schedule, proof.map)) findings.add("deadlock: {}", wait);
  if (findings.any()) return failed();
  return proof;
}

std::vector<std::string> validate(const Schedule& schedule) {
  return prove(schedule).findings;
}

}  // namespace slimpipe::schedule
