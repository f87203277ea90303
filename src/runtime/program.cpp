#include "slimpipe/runtime/program.h"

#include <algorithm>
#include <deque>
#include <map>

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/placement.h"
#include "slimpipe/runtime/progress.h"
#include "slimpipe/schedule/channels.h"

#include "runtime/exchange_compiler.h"
#include "runtime/purpose.h"

namespace slimpipe::runtime {

using schedule::Action;
using schedule::LayerStep;
using schedule::Phase;

namespace {

/// Compiles one pipeline rank.
class Compiler {
 public:
  Compiler(const schedule::Schedule& schedule, const schedule::ChannelMap& channels,
           const CompileInput& input, int rank)
      : schedule_(schedule), input_(input), rank_(rank), expansions_(schedule, rank, input.stage_layers) {
    program_.device = input.devices[rank];
    program_.training = schedule.training;
    program_.spec = schedule.spec;
    for (const int stage : schedule.stage_of[rank]) {
      program_.first_layers.push_back(layers_before(input.stage_layers, stage));
    }
    for (const schedule::Channel& channel : channels.channels) {
      if (channel.source != rank || is_exchange(channel.payload)) continue;
      program_.sends_in_flight[{program_.device, input.devices[channel.destination],
                                purpose_of(channel.payload)}] = std::max(2, channel.outstanding);
    }
  }

  Program run() {
    const auto& actions = schedule_.devices[rank_];
    if (!actions.empty()) post_receive(actions[0]);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i + 1 < actions.size()) post_receive(actions[i + 1]);
      compile_action(actions[i]);
    }
    for (auto& [channel, sends] : sends_under_way_) {
      while (!sends.empty()) wait_oldest_send(sends);
    }
    if (schedule_.training && input_.tied_bytes > 0) combine_tied_gradients();
    return std::move(program_);
  }

 private:
  [[nodiscard]] int device_of_stage(int stage) const { return input_.devices[schedule_.device_of(stage)]; }

  [[nodiscard]] const std::vector<LayerStep>& steps_of(const Action& action) {
    return expansions_.of(action);
  }

  int add_transfer(const comm::Channel& channel, std::int64_t bytes) {
    program_.transfers.push_back({channel, bytes});
    return static_cast<int>(program_.transfers.size()) - 1;
  }

  void add(StepKind kind, Phase phase, const Action& action, int layer, int transfer) {
    program_.steps.push_back({kind, phase, action, layer, transfer});
  }

  /// Posts the receive of `action` where it has one, remembering it for the action's own wait.
  void post_receive(const Action& action) {
    for (const LayerStep& step : steps_of(action)) {
      if (!schedule::is_receive(step.phase) || schedule::is_exchange(step.phase)) continue;
      const comm::Channel channel{input_.devices[step.peer], program_.device,
                                  purpose_of(schedule::payload_of(step.phase))};
      const int transfer = add_transfer(channel, input_.message_bytes);
      add(StepKind::kPostReceive, step.phase, action, -1, transfer);
      receives_posted_.push_back(transfer);
    }
  }

  void compile_action(const Action& action) {
    const std::vector<LayerStep>& steps = steps_of(action);
    ExchangeCompiler exchange(schedule_, input_, rank_, action, steps, program_);
    exchange.begin();
    for (const LayerStep& step : steps) {
      if (schedule::is_exchange(step.phase)) {
        exchange.compile(step);
      } else if (schedule::is_receive(step.phase)) {
        add(StepKind::kWaitReceive, step.phase, action, -1, receives_posted_.front());
        receives_posted_.pop_front();
      } else if (schedule::is_send(step.phase)) {
        send(step, action);
      } else {
        add(StepKind::kCompute, step.phase, action, step.layer, -1);
      }
    }
    exchange.end();
  }

  void send(const LayerStep& step, const Action& action) {
    const comm::Channel channel{program_.device, input_.devices[step.peer],
                                purpose_of(schedule::payload_of(step.phase))};
    auto& sends = sends_under_way_[channel];
    while (std::ssize(sends) >= program_.sends_in_flight.at(channel)) wait_oldest_send(sends);
    const int transfer = add_transfer(channel, input_.message_bytes);
    add(StepKind::kPostSend, step.phase, action, -1, transfer);
    sends.push_back(program_.steps.back());
  }

  void wait_oldest_send(std::deque<Step>& sends) {
    const Step& posted = sends.front();
    add(StepKind::kWaitSend, posted.phase, posted.action, -1, posted.transfer);
    sends.pop_front();
  }

  /// The first and the last stage swap what they have of a tied embedding's gradient, and add the other's.
  void combine_tied_gradients() {
    const int first = device_of_stage(0);
    const int last = device_of_stage(schedule_.spec.stages() - 1);
    const int self = program_.device;
    if (self != first && self != last) return;
    const Phase phase = Phase::kCombineTiedGradients;
    const Action none;
    if (first == last) {
      add(StepKind::kCompute, phase, none, -1, -1);
      return;
    }
    const int peer = self == first ? last : first;
    const int receive = add_transfer({peer, self, comm::Purpose::kTiedGradient}, input_.tied_bytes);
    const int send = add_transfer({self, peer, comm::Purpose::kTiedGradient}, input_.tied_bytes);
    add(StepKind::kPostReceive, phase, none, -1, receive);
    add(StepKind::kPostSend, phase, none, -1, send);
    add(StepKind::kWaitReceive, phase, none, -1, receive);
    // The own gradient is still being read by the send until it is done.
    add(StepKind::kWaitSend, phase, none, -1, send);
    add(StepKind::kCompute, phase, none, -1, -1);
  }

  const schedule::Schedule& schedule_;
  const CompileInput& input_;
  int rank_;
  schedule::DeviceExpansions expansions_;
  Program program_;
  std::deque<int> receives_posted_;
  std::map<comm::Channel, std::deque<Step>> sends_under_way_;
};

}  // namespace

std::vector<Program> compile(const schedule::Schedule& schedule, const CompileInput& input) {
  const int pipeline = schedule.spec.pipeline;
  SLIMPIPE_CHECK(std::ssize(input.stage_layers) == schedule.spec.stages(),
                 "layers of {} stages for {} stages", input.stage_layers.size(), schedule.spec.stages());
  SLIMPIPE_CHECK(static_cast<int>(input.devices.size()) == pipeline, "{} devices for a pipeline of {}",
                 input.devices.size(), pipeline);
  auto channels = schedule::connect(schedule);
  const auto waits = schedule::plan_outstanding_sends(schedule, channels);
  SLIMPIPE_CHECK(waits.empty(), "the schedule does not end: {}", waits.front());
  std::vector<Program> programs;
  programs.reserve(pipeline);
  for (int rank = 0; rank < pipeline; ++rank)
    programs.push_back(Compiler(schedule, channels, input, rank).run());
  return programs;
}

std::string describe(const Step& step) {
  static constexpr const char* kPrefix[] = {"",
                                            "post receive: ", "wait receive: ", "post send: ", "wait send: "};
  std::string text = kPrefix[static_cast<std::size_t>(step.kind)];
  if (step.phase == Phase::kCombineTiedGradients) return text + std::string(schedule::name_of(step.phase));
  text += fmt::format("{} {}", schedule::to_string(step.action), schedule::name_of(step.phase));
  if (step.layer >= 0) text += fmt::format(", layer {}", step.layer);
  return text;
}

std::string describe(const Program& program, const Step& step) {
  std::string text = describe(step);
  const schedule::Help* help = step.help < 0 ? nullptr : &program.helps.at(step.help);
  const bool helps = schedule::is_help(step.phase);
  if (step.layer >= 0 && !helps) {
    text += fmt::format(" (model.layers.{})", program.first_layers.at(step.action.chunk) + step.layer);
  }
  if (help != nullptr) {
    text += fmt::format(", keys {} to {} of {}", help->first_key, help->first_key + help->keys - 1,
                        schedule::to_string(help->action));
    text += helps ? fmt::format(" of pipeline rank {}", help->owner)
                  : fmt::format(" by pipeline rank {}", help->helper);
  }
  if (step.transfer >= 0) {
    const auto& [channel, bytes] = program.transfers.at(step.transfer);
    const bool receives = step.kind == StepKind::kPostReceive || step.kind == StepKind::kWaitReceive;
    text += fmt::format(": {}, {} bytes {} device {}", content_of(channel.purpose), bytes,
                        receives ? "from" : "to", receives ? channel.source : channel.destination);
  }
  return text;
}

std::string Progress::describe() const {
  const Program* program = program_.load(std::memory_order_acquire);
  const char* activity = activity_.load(std::memory_order_relaxed);
  if (program == nullptr) return activity;
  const auto index = static_cast<std::size_t>(index_.load(std::memory_order_relaxed));
  if (index >= program->steps.size()) return activity;
  return fmt::format("step {} of {}: {}", index + 1, program->steps.size(),
                     runtime::describe(*program, program->steps[index]));
}

}  // namespace slimpipe::runtime
