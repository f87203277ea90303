#pragma once
// What every transport does with a post before the message takes its own way: check it, number it, and
// name it in errors.

#include <cstdint>
#include <map>
#include <string>

#include "slimpipe/comm/transport.h"

namespace slimpipe::comm {

enum class Direction : std::uint8_t { kSend, kReceive };

/// "activation channel from device 0 to device 1", for error texts.
[[nodiscard]] std::string describe(const Channel& channel);

/// The error of two ends that posted different sizes for message `number` of a channel.
[[nodiscard]] std::string size_disagreement(const Channel& channel, std::int64_t number,
                                            std::int64_t sent_bytes, std::int64_t expected_bytes);

/// Ends a wait for message `number` of a channel because the run has stopped.
[[noreturn]] void throw_stopped(const Channel& channel, std::int64_t number);

/// Checks the posts of one device and counts the messages of each of its channels.
class PostLedger {
 public:
  /// The device may exchange messages with those of [first_peer, first_peer + peers) other than itself.
  PostLedger(int device, int first_peer, int peers)
      : device_(device), first_peer_(first_peer), peers_(peers) {}

  /// The message's number on its channel, from 0. Throws where the post makes no sense.
  std::int64_t enter(Direction direction, const Channel& channel, const void* data, std::int64_t bytes);
  [[nodiscard]] int device() const { return device_; }

 private:
  int device_;
  int first_peer_;
  int peers_;
  std::map<Channel, std::int64_t> posted_;
};

}  // namespace slimpipe::comm
