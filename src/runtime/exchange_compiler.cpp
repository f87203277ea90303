#include "runtime/exchange_compiler.h"

#include "slimpipe/core/check.h"

#include "runtime/purpose.h"

namespace slimpipe::runtime {

using schedule::Help;
using schedule::LayerStep;
using schedule::Payload;
using schedule::Phase;

ExchangeCompiler::ExchangeCompiler(const schedule::Schedule& schedule, const CompileInput& input, int rank,
                                   const schedule::Action& action, const std::vector<LayerStep>& steps,
                                   Program& program)
    : schedule_(schedule), input_(input), rank_(rank), action_(action), steps_(steps), program_(program) {}

void ExchangeCompiler::begin() {
  for (const LayerStep& step : steps_) {
    if (step.help < 0) continue;
    const auto [help, is_new] = helps_.try_emplace(step.help);
    if (is_new) {
      help->second.index = static_cast<int>(program_.helps.size());
      program_.helps.push_back(help_at(step.help));
    }
    if (step.phase == Phase::kReceiveKeys) help->second.layers.push_back(step.layer);
  }
  for (const auto& [help, under_way] : helps_) post_next_receives(help);
}

void ExchangeCompiler::compile(const LayerStep& step) {
  if (step.help < 0) return add(StepKind::kCompute, step.phase, -1, step.layer, -1);
  UnderWay& help = helps_.at(step.help);
  switch (step.phase) {
    case Phase::kSendKeys:
      help.keys = post(StepKind::kPostSend, step.phase, step.help, step.layer);
      return;
    case Phase::kSendQuery:
      help.query = post(StepKind::kPostSend, step.phase, step.help, step.layer);
      help.result = post(StepKind::kPostReceive, Phase::kReceiveResult, step.help, step.layer);
      return;
    case Phase::kReceiveResult:
      wait(StepKind::kWaitReceive, step.phase, step.help, step.layer, help.result);
      wait(StepKind::kWaitSend, Phase::kSendKeys, step.help, step.layer, help.keys);
      wait(StepKind::kWaitSend, Phase::kSendQuery, step.help, step.layer, help.query);
      return;
    case Phase::kReceiveKeys:
      return wait(StepKind::kWaitReceive, step.phase, step.help, step.layer, help.keys);
    case Phase::kReceiveQuery:
      return wait(StepKind::kWaitReceive, step.phase, step.help, step.layer, help.query);
    case Phase::kSendResult:
      return send_result(step, help);
    case Phase::kHelpAttention:
    case Phase::kHelpAttentionBackward:
      // The answer's memory is that of the answer before.
      if (help.result >= 0)
        wait(StepKind::kWaitSend, Phase::kSendResult, step.help, help.result_layer, help.result);
      return add(StepKind::kCompute, step.phase, step.help, step.layer, -1);
    default:
      return add(StepKind::kCompute, step.phase, step.help, step.layer, -1);
  }
}

void ExchangeCompiler::end() {
  for (auto& [index, help] : helps_)
    if (help.result >= 0)
      wait(StepKind::kWaitSend, Phase::kSendResult, index, help.result_layer, help.result);
}

void ExchangeCompiler::post_next_receives(int help) {
  UnderWay& under_way = helps_.at(help);
  if (under_way.layers.empty()) return;
  const int layer = under_way.layers.front();
  under_way.layers.pop_front();
  under_way.keys = post(StepKind::kPostReceive, Phase::kReceiveKeys, help, layer);
  under_way.query = post(StepKind::kPostReceive, Phase::kReceiveQuery, help, layer);
}

void ExchangeCompiler::send_result(const LayerStep& step, UnderWay& help) {
  help.result = post(StepKind::kPostSend, step.phase, step.help, step.layer);
  help.result_layer = step.layer;
  post_next_receives(step.help);
}

int ExchangeCompiler::post(StepKind kind, Phase phase, int help, int layer) {
  const Help& about = help_at(help);
  const Payload payload = schedule::payload_of(phase);
  const int peer = input_.devices[about.owner == rank_ ? about.helper : about.owner];
  const bool sends = kind == StepKind::kPostSend;
  const comm::Channel channel{sends ? program_.device : peer, sends ? peer : program_.device,
                              purpose_of(payload)};
  program_.transfers.push_back({channel, message_bytes(payload, about)});
  const int transfer = static_cast<int>(program_.transfers.size()) - 1;
  add(kind, phase, help, layer, transfer);
  return transfer;
}

void ExchangeCompiler::wait(StepKind kind, Phase phase, int help, int layer, int& transfer) {
  add(kind, phase, help, layer, transfer);
  transfer = -1;
}

void ExchangeCompiler::add(StepKind kind, Phase phase, int help, int layer, int transfer) {
  program_.steps.push_back({.kind = kind,
                            .phase = phase,
                            .action = action_,
                            .layer = layer,
                            .transfer = transfer,
                            .help = help < 0 ? -1 : helps_.at(help).index});
}

const Help& ExchangeCompiler::help_at(int help) const {
  return schedule_.exchange.slots.at(action_.arg).at(help);
}

std::int64_t ExchangeCompiler::message_bytes(Payload payload, const Help& help) const {
  const bool forward = help.action.kind == schedule::ActionKind::kForward;
  switch (payload) {
    case Payload::kExchangeKeys:
      return model::keys_bytes(input_.attention, help.keys);
    case Payload::kExchangeQuery:
      return model::query_bytes(input_.attention, forward);
    case Payload::kExchangeResult:
      return model::result_bytes(input_.attention, forward, help.keys);
    default:
      throw_error("{} is no message of the exchange", schedule::name_of(payload));
  }
}

}  // namespace slimpipe::runtime
