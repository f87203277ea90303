#pragma once
// The attention context exchange of one action, compiled.

#include <deque>
#include <map>
#include <vector>

#include "slimpipe/runtime/program.h"
#include "slimpipe/schedule/channels.h"

namespace slimpipe::runtime {

/// Appends to `program` the exchange's steps of one action of a pipeline rank, and its helps.
///
/// A helper posts what it receives for a help's first layer at the beginning, for each further one when it
/// has posted its answer to the one before. An owner posts the receive of an answer with its query; when that
/// has come, what it has sent for it has gone.
class ExchangeCompiler {
 public:
  /// `steps`: all steps of `action`. References outlive it.
  ExchangeCompiler(const schedule::Schedule& schedule, const CompileInput& input, int rank,
                   const schedule::Action& action, const std::vector<schedule::LayerStep>& steps,
                   Program& program);
  /// At the action's beginning, before its first step.
  void begin();
  /// A step for which schedule::is_exchange holds.
  void compile(const schedule::LayerStep& step);
  /// After the action's last step.
  void end();

 private:
  /// What the device has under way for a help.
  struct UnderWay {
    int index = -1;          ///< in Program::helps
    std::deque<int> layers;  ///< helper: whose receives are not posted yet
    // transfers, -1 for none
    int keys = -1;
    int query = -1;
    int result = -1;
    int result_layer = -1;
  };

  void post_next_receives(int help);
  void send_result(const schedule::LayerStep& step, UnderWay& help);
  int post(StepKind kind, schedule::Phase phase, int help, int layer);
  void wait(StepKind kind, schedule::Phase phase, int help, int layer, int& transfer);
  void add(StepKind kind, schedule::Phase phase, int help, int layer, int transfer);
  [[nodiscard]] const schedule::Help& help_at(int help) const;
  [[nodiscard]] std::int64_t message_bytes(schedule::Payload payload, const schedule::Help& help) const;

  const schedule::Schedule& schedule_;
  const CompileInput& input_;
  int rank_;
  const schedule::Action& action_;
  const std::vector<schedule::LayerStep>& steps_;
  Program& program_;
  std::map<int, UnderWay> helps_;  ///< by index into the slot's helps
};

}  // namespace slimpipe::runtime
