#pragma once
// A Program is a schedule compiled for one device: a flat list of steps that the executor runs strictly in
// order. Everything is decided here: when a receive is posted, when a message is waited for, when a buffer
// may be reused.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slimpipe/comm/topology.h"
#include "slimpipe/comm/transport.h"
#include "slimpipe/model/exchange_messages.h"
#include "slimpipe/schedule/phases.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::runtime {

enum class StepKind : std::uint8_t {
  kCompute,
  kPostReceive,
  kWaitReceive,  ///< the data has arrived and belongs to the slice from here on
  kPostSend,
  kWaitSend,  ///< the message's buffer is freed here
};

struct Step {
  StepKind kind = StepKind::kCompute;
  schedule::Phase phase = schedule::Phase::kEmbed;
  schedule::Action action;  ///< the action this step is of (of a message: the one that sends or receives it)
  int layer = -1;           ///< index within the chunk, -1 where the step is not of one layer
  int transfer = -1;        ///< index into Program::transfers of a communication step
  int help = -1;            ///< index into Program::helps of a step of the exchange but kGatherQuery
};

struct Transfer {
  comm::Channel channel;
  std::int64_t bytes = 0;
};

struct Program {
  int device = 0;
  bool training = true;
  schedule::Spec spec;
  std::vector<Step> steps;
  std::vector<Transfer> transfers;
  std::vector<schedule::Help> helps;  ///< that the device has a part in, owner and helper pipeline ranks
  std::vector<int> first_layers;      ///< by chunk: the model's layer that is the chunk's layer 0
  /// Sends of a channel that may be under way before the device waits for the oldest: what the schedule plans
  /// (schedule/channels.h), and at least two, so that a receiver that is late by one action does not stall
  /// the sender.
  std::map<comm::Channel, int> sends_in_flight;
};

/// What compile needs to know of the model and the layout.
struct CompileInput {
  std::vector<int> stage_layers;    ///< layers of each stage of the model
  std::int64_t message_bytes = 0;   ///< hidden states of one slice in the compute type
  std::int64_t tied_bytes = 0;      ///< fp32 gradient of a tied embedding; 0: embeddings are not tied
  std::vector<int> devices;         ///< pipeline rank -> device index
  model::AttentionShape attention;  ///< of a schedule with an exchange
};

/// Compiles the schedule for every pipeline rank. Receives are posted one action ahead of their use; those of
/// the exchange at the beginning of a helper's action and, layer by layer, when the layer before is answered,
/// and that of a result with its query.
[[nodiscard]] std::vector<Program> compile(const schedule::Schedule& schedule, const CompileInput& input);

/// Everything wrong with a set of programs, empty when sound: every channel carries the same sequence of
/// sizes at both ends, every transfer is posted once and waited for once, and the programs finish when run
/// side by side with sends that complete only once their receive is posted.
[[nodiscard]] std::vector<std::string> validate(const std::vector<Program>& programs);

/// "F0.1.3 attention, layer 2", "wait receive: F0.1.3 receive activation": for traces and checks.
[[nodiscard]] std::string describe(const Step& step);
/// Besides, which layer of the model that is, or which tensor moves: "…, layer 2 (model.layers.6)", "…:
/// hidden states, 4096 bytes from device 1". For what is told of a run that fails or does not move.
[[nodiscard]] std::string describe(const Program& program, const Step& step);

}  // namespace slimpipe::runtime
