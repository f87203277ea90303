#pragma once
// A schedule's run as the rule on outstanding sends (channels.h) allows it, with times. The validator asks
// whether it ends, the simulator when.
//
// Every wait is for a count to grow (messages sent, actions reached) and nothing ever takes a step back,
// so a device that may go on may go on for ever after: how far the devices get, and every time, is the
// same in whatever order they are advanced. One run therefore decides.

#include <optional>
#include <string>
#include <vector>

#include "slimpipe/schedule/channels.h"
#include "slimpipe/schedule/simulate.h"

namespace slimpipe::schedule {

struct DeviceRun {
  std::vector<TimedAction> done;
  double busy = 0;   ///< sum of the costs of its steps
  double clock = 0;  ///< end of what it has done
};

class Execution {
 public:
  /// Needs a schedule whose channels carry the same sequence at both ends. Keeps references.
  Execution(const Schedule& schedule, const ChannelMap& map, const CostModel& cost);

  /// Advances every device as far as it gets.
  void run();

  [[nodiscard]] bool finished() const;
  [[nodiscard]] const std::vector<DeviceRun>& devices() const { return runs_; }
  /// What each unfinished device waits for, a sentence each.
  [[nodiscard]] std::vector<std::string> waits() const;
  /// Of a run that has finished: the least `outstanding` of a channel that would have held back no send.
  [[nodiscard]] int most_unposted(int channel) const;

 private:
  enum class WaitKind : std::uint8_t { kMessage, kPosting };
  /// For message `number` of `channel` to be sent, or for its receive to be posted.
  struct Wait {
    WaitKind kind;
    int channel;
    int number;
  };
  struct Cursor {
    int action = 0;
    int step = 0;
    const std::vector<LayerStep>* steps = nullptr;  ///< of the current action
    double start = 0;                               ///< of the current action
    bool started = false;                           ///< has spent time on it
    std::vector<double> reached;                    ///< [action] -> when; as long as it got
    std::optional<Wait> wait;
  };

  void advance(int device);
  /// Runs the current step, or sets the cursor's wait and returns false.
  bool take_step(int device);
  /// Takes the step's message, or sets the cursor's wait for it and returns false.
  bool receive(int device, const LayerStep& step);
  /// Whether the channel's rule lets the device send now; sets the cursor's wait where it does not.
  bool may_send(int device, int channel);
  void reach_action(int device);
  void wake(int device, WaitKind kind, int channel);
  /// The action of the destination at which it posts the receive of message `number`.
  [[nodiscard]] int posting_action(const Channel& channel, int number) const;
  [[nodiscard]] std::string describe(int device) const;
  [[nodiscard]] std::string describe_message(const Wait& wait) const;
  [[nodiscard]] std::string position(int device) const;

  const Schedule& schedule_;
  const ChannelMap& map_;
  const CostModel& cost_;
  std::vector<DeviceExpansions> expansions_;  ///< [device]
  std::vector<DeviceRun> runs_;
  std::vector<Cursor> cursors_;
  std::vector<std::vector<double>> sent_;  ///< [channel][message] -> when
  std::vector<int> received_;              ///< [channel] -> messages taken
  std::vector<std::vector<int>> inbound_;  ///< [device] -> channels that end there
  std::vector<int> ready_;                 ///< devices that may be able to go on
};

}  // namespace slimpipe::schedule
