#pragma once
// The messages of a schedule, read off the expansion of its actions, and how many of them may be under way.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "slimpipe/schedule/phases.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

enum class Payload : std::uint8_t {
  kActivation,
  kGradient,
  kExchangeKeys,    ///< owner to helper: K and V of a range
  kExchangeQuery,   ///< owner to helper
  kExchangeResult,  ///< helper to owner
};
[[nodiscard]] std::string_view name_of(Payload payload);
[[nodiscard]] bool is_exchange(Payload payload);
/// What a communication phase moves.
[[nodiscard]] Payload payload_of(Phase phase);

inline constexpr int kUnboundedSends = std::numeric_limits<int>::max() / 2;

/// A directed channel: message k is sent in action sends[k] of the source device and received in action
/// receives[k] of the destination device, for a model of one layer a stage. An action may have several
/// messages, of one channel or of many; those of the exchange are sent once for each layer.
struct Channel {
  int source = 0;
  int destination = 0;
  Payload payload = Payload::kActivation;
  std::vector<int> sends;
  std::vector<int> receives;
  /// Messages that the source may have sent without a posted receive, see plan_outstanding_sends.
  int outstanding = kUnboundedSends;
};

/// The channels of a schedule. A communication step of a device belongs to the one between that device and
/// the step's peer that carries the step's payload.
class ChannelMap {
 public:
  std::vector<Channel> channels;

  /// Index into `channels`; throws Error where there is none.
  [[nodiscard]] int of_step(int device, const LayerStep& step) const;
  /// The same, of a new channel where there is none.
  int add(int device, const LayerStep& step);

 private:
  using Key = std::tuple<int, int, Payload>;  ///< source, destination
  static Key key_of(int device, const LayerStep& step);
  std::map<Key, int> index_;
};

/// Needs a schedule whose stages are placed and whose actions name existing chunks.
[[nodiscard]] ChannelMap connect(const Schedule& schedule);

/// The rule that bounds messages in flight. Devices and executor keep to it, and simulate() accounts for it.
///
///  - A device reaches action k when its action k-1 is done, its send included. It then posts the receives
///    of actions k and k+1 (those already posted aside). Receives are never posted earlier.
///  - A send never waits for its own receive, but a device may not start send number q of a channel before
///    the receiver has posted the receive of message q - `outstanding` of that channel. So that many messages
///    may be on their way with nowhere to go, and the sender needs one buffer more.
///
/// `outstanding` is the least with which no send is held back on the time lines of equal forwards, backwards
/// for inputs and weight gradients, without latency and with one of half a forward and backward, which is
/// what slope 2 hides (for SlimPipe with δ > 2 at least δ, which hides more). No other time line can deadlock
/// under the rule then: what a device waits for only ever comes to pass, so if there is one order of events
/// in which all end, they end in every order. The exchange's messages are outside the rule: a helper posts
/// the receives of a help's next layer once it has done one, an owner that of a result when it asks for it.
///
/// Sets it in every channel of `map`, which is connect(schedule). Returns what each device waits for where
/// the schedule does not end even without the rule, a sentence each; empty where it does.
std::vector<std::string> plan_outstanding_sends(const Schedule& schedule, ChannelMap& map);

}  // namespace slimpipe::schedule
