#include <algorithm>
#include <map>

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/program.h"

namespace slimpipe::runtime {
namespace {

/// Messages of one channel as each end sees them.
struct ChannelUse {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
};

std::string name_of(const comm::Channel& channel) {
  return fmt::format("channel {} -> {} ({})", channel.source, channel.destination,
                     comm::name_of(channel.purpose));
}

void check_transfers(const Program& program, std::vector<std::string>& problems) {
  std::vector<int> posted(program.transfers.size());
  std::vector<int> waited(program.transfers.size());
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::kCompute) continue;
    if (step.transfer < 0 || step.transfer >= static_cast<int>(program.transfers.size())) {
      problems.push_back(fmt::format("device {}: \"{}\" has no transfer", program.device, describe(step)));
      continue;
    }
    const bool post = step.kind == StepKind::kPostReceive || step.kind == StepKind::kPostSend;
    const bool send = step.kind == StepKind::kPostSend || step.kind == StepKind::kWaitSend;
    const comm::Channel& channel = program.transfers[step.transfer].channel;
    if ((send ? channel.source : channel.destination) != program.device) {
      problems.push_back(
          fmt::format("device {}: \"{}\" is on {}", program.device, describe(step), name_of(channel)));
    }
    ++(post ? posted : waited)[step.transfer];
    if (!post && posted[step.transfer] == 0) {
      problems.push_back(
          fmt::format("device {}: \"{}\" comes before its post", program.device, describe(step)));
    }
  }
  for (std::size_t i = 0; i < posted.size(); ++i) {
    if (posted[i] != 1 || waited[i] != 1) {
      problems.push_back(fmt::format("device {}: a transfer on {} is posted {} times and waited for {} times",
                                     program.device, name_of(program.transfers[i].channel), posted[i],
                                     waited[i]));
    }
  }
}

void check_channels(const std::vector<Program>& programs, std::vector<std::string>& problems) {
  std::map<comm::Channel, ChannelUse> channels;
  for (const Program& program : programs) {
    for (const Step& step : program.steps) {
      if (step.kind != StepKind::kPostSend && step.kind != StepKind::kPostReceive) continue;
      const Transfer& transfer = program.transfers[step.transfer];
      ChannelUse& use = channels[transfer.channel];
      (step.kind == StepKind::kPostSend ? use.sent : use.received).push_back(transfer.bytes);
    }
  }
  for (const auto& [channel, use] : channels) {
    if (use.sent != use.received) {
      problems.push_back(fmt::format("{}: {} messages are sent and {} received, or their sizes differ",
                                     name_of(channel), use.sent.size(), use.received.size()));
    }
  }
}

/// Runs the programs side by side. A wait for a receive passes once its send is posted, a wait for a send
/// once its receive is posted. What is runnable stays runnable, so one order of running decides for all.
class DeadlockCheck {
 public:
  explicit DeadlockCheck(const std::vector<Program>& programs)
      : programs_(programs), next_(programs.size()) {}

  void run(std::vector<std::string>& problems) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t d = 0; d < programs_.size(); ++d) {
        while (next_[d] < programs_[d].steps.size() && try_step(d)) moved = true;
      }
    }
    for (std::size_t d = 0; d < programs_.size(); ++d) {
      if (next_[d] == programs_[d].steps.size()) continue;
      problems.push_back(fmt::format("deadlock: device {} stops at step {}: {}", programs_[d].device,
                                     next_[d] + 1, describe(programs_[d].steps[next_[d]])));
    }
  }

 private:
  struct Counts {
    int sends = 0;
    int receives = 0;
  };

  bool try_step(std::size_t d) {
    const Program& program = programs_[d];
    const Step& step = program.steps[next_[d]];
    if (step.kind != StepKind::kCompute) {
      Counts& counts = posted_[program.transfers[step.transfer].channel];
      const auto key = std::pair(d, step.transfer);
      if (step.kind == StepKind::kPostSend) number_[key] = counts.sends++;
      if (step.kind == StepKind::kPostReceive) number_[key] = counts.receives++;
      if (step.kind == StepKind::kWaitReceive && counts.sends <= number_[key]) return false;
      if (step.kind == StepKind::kWaitSend && counts.receives <= number_[key]) return false;
    }
    ++next_[d];
    return true;
  }

  const std::vector<Program>& programs_;
  std::vector<std::size_t> next_;
  std::map<comm::Channel, Counts> posted_;
  std::map<std::pair<std::size_t, int>, int> number_;  // (device, transfer) -> its number on the channel
};

}  // namespace

std::vector<std::string> validate(const std::vector<Program>& programs) {
  std::vector<std::string> problems;
  for (const Program& program : programs) check_transfers(program, problems);
  if (!problems.empty()) return problems;
  check_channels(programs, problems);
  DeadlockCheck(programs).run(problems);
  return problems;
}

}  // namespace slimpipe::runtime
