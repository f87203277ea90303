#include "schedule/execution.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "slimpipe/core/check.h"

namespace slimpipe::schedule {

Execution::Execution(const Schedule& schedule, const ChannelMap& map, const CostModel& cost)
    : schedule_(schedule),
      map_(map),
      cost_(cost),
      runs_(schedule.devices.size()),
      cursors_(schedule.devices.size()),
      sent_(map.channels.size()),
      received_(map.channels.size()),
      inbound_(schedule.devices.size()) {
  SLIMPIPE_CHECK(std::isfinite(cost.latency) && cost.latency >= 0, "latency is {}", cost.latency);
  for (int device = 0; device < std::ssize(schedule.devices); ++device)
    expansions_.emplace_back(schedule, device, cost.stage_layers);
  for (std::size_t device = 0; device < runs_.size(); ++device) {
    runs_[device].done.reserve(schedule.devices[device].size());
    cursors_[device].reached.reserve(schedule.devices[device].size() + 1);
  }
  for (int channel = 0; channel < std::ssize(map.channels); ++channel) {
    inbound_[map.channels[channel].destination].push_back(channel);
    sent_[channel].reserve(map.channels[channel].sends.size());
  }
}

void Execution::run() {
  for (int device = 0; device < std::ssize(cursors_); ++device) {
    reach_action(device);
    ready_.push_back(device);
  }
  while (!ready_.empty()) {
    const int device = ready_.back();
    ready_.pop_back();
    advance(device);
  }
}

bool Execution::finished() const {
  for (std::size_t device = 0; device < runs_.size(); ++device)
    if (runs_[device].done.size() != schedule_.devices[device].size()) return false;
  return true;
}

void Execution::advance(int device) {
  auto& cursor = cursors_[device];
  const auto& actions = schedule_.devices[device];
  while (cursor.action < std::ssize(actions)) {
    while (cursor.step < std::ssize(*cursor.steps)) {
      if (!take_step(device)) return;
      ++cursor.step;
    }
    runs_[device].done.push_back({actions[cursor.action], cursor.start, runs_[device].clock});
    ++cursor.action;
    reach_action(device);
  }
}

void Execution::reach_action(int device) {
  auto& cursor = cursors_[device];
  cursor.step = 0;
  cursor.started = false;
  cursor.start = runs_[device].clock;
  cursor.reached.push_back(runs_[device].clock);
  if (cursor.action < std::ssize(schedule_.devices[device])) {
    const auto& action = schedule_.devices[device][cursor.action];
    cursor.steps = &expansions_[device].of(action);
  }
  for (const int channel : inbound_[device]) wake(map_.channels[channel].source, WaitKind::kPosting, channel);
}

bool Execution::take_step(int device) {
  auto& cursor = cursors_[device];
  auto& run = runs_[device];
  const auto& step = (*cursor.steps)[cursor.step];
  if (is_receive(step.phase) && !receive(device, step)) return false;
  const bool sends = is_send(step.phase);
  const int channel = sends ? map_.of_step(device, step) : -1;
  // A send's own cost comes after the wait for its turn; the message leaves when it is paid.
  if (sends && !may_send(device, channel)) return false;
  const double seconds = cost_.step(device, schedule_.devices[device][cursor.action], step);
  SLIMPIPE_CHECK(std::isfinite(seconds) && seconds >= 0, "cost of step {} is {}", name_of(step.phase),
                 seconds);
  run.clock += seconds;
  run.busy += seconds;
  cursor.started = cursor.started || seconds > 0;
  if (sends) {
    sent_[channel].push_back(run.clock);
    wake(map_.channels[channel].destination, WaitKind::kMessage, channel);
  }
  return true;
}

bool Execution::receive(int device, const LayerStep& step) {
  auto& cursor = cursors_[device];
  const int channel = map_.of_step(device, step);
  const int number = received_[channel];
  if (number >= std::ssize(sent_[channel])) {
    cursor.wait = Wait{WaitKind::kMessage, channel, number};
    return false;
  }
  ++received_[channel];
  auto& clock = runs_[device].clock;
  clock = std::max(clock, sent_[channel][number] + cost_.latency);
  if (!cursor.started) cursor.start = clock;
  return true;
}

bool Execution::may_send(int device, int index) {
  auto& cursor = cursors_[device];
  const auto& channel = map_.channels[index];
  const int number = static_cast<int>(sent_[index].size()) - channel.outstanding;
  if (number < 0) return true;
  const auto& reached = cursors_[channel.destination].reached;
  const int posting = posting_action(channel, number);
  if (posting >= std::ssize(reached)) {
    cursor.wait = Wait{WaitKind::kPosting, index, number};
    return false;
  }
  runs_[device].clock = std::max(runs_[device].clock, reached[posting]);
  return true;
}

int Execution::posting_action(const Channel& channel, int number) const {
  return std::max(0, channel.receives[number] - 1);
}

int Execution::most_unposted(int index) const {
  const auto& channel = map_.channels[index];
  const auto& reached = cursors_[channel.destination].reached;
  int most = 0;
  int posted = 0;  // receives that are posted when the message is sent
  for (int number = 0; number < std::ssize(sent_[index]); ++number) {
    while (posted <= number && reached[posting_action(channel, posted)] <= sent_[index][number]) ++posted;
    most = std::max(most, number - posted + 1);
  }
  return most;
}

void Execution::wake(int device, WaitKind kind, int channel) {
  auto& wait = cursors_[device].wait;
  if (!wait || wait->kind != kind || wait->channel != channel) return;
  wait.reset();
  ready_.push_back(device);
}

std::vector<std::string> Execution::waits() const {
  std::vector<std::string> sentences;
  for (int device = 0; device < std::ssize(cursors_); ++device)
    if (cursors_[device].wait) sentences.push_back(describe(device));
  return sentences;
}

std::string Execution::position(int device) const {
  const auto& actions = schedule_.devices[device];
  const int action = cursors_[device].action;
  if (action == std::ssize(actions)) return fmt::format("device {}, which is done", device);
  return fmt::format("device {} at {} (action {} of {})", device, to_string(actions[action]), action,
                     actions.size());
}

std::string Execution::describe_message(const Wait& wait) const {
  const auto& channel = map_.channels[wait.channel];
  if (is_exchange(channel.payload)) return fmt::format("{} {}", name_of(channel.payload), wait.number);
  const auto& receiving = schedule_.devices[channel.destination][channel.receives[wait.number]];
  return fmt::format("{} of microbatch {}, slice {}", name_of(channel.payload), receiving.microbatch,
                     receiving.slice);
}

std::string Execution::describe(int device) const {
  const auto& wait = *cursors_[device].wait;
  const auto& channel = map_.channels[wait.channel];
  const auto message = describe_message(wait);
  if (wait.kind == WaitKind::kMessage)
    return fmt::format("{} waits to receive the {} from {}", position(device), message,
                       position(channel.source));
  return fmt::format("{} holds back its send until the receive of the {} is posted at action {} by {}",
                     position(device), message, posting_action(channel, wait.number),
                     position(channel.destination));
}

}  // namespace slimpipe::schedule
