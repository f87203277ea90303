#include "comm/posting.h"

#include "slimpipe/core/check.h"

namespace slimpipe::comm {

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::kActivation:
      return "activation";
    case Purpose::kGradient:
      return "gradient";
    case Purpose::kTiedGradient:
      return "tied_gradient";
    case Purpose::kControl:
      return "control";
    case Purpose::kExchangeKeys:
      return "exchange_keys";
    case Purpose::kExchangeQuery:
      return "exchange_query";
    case Purpose::kExchangeResult:
      return "exchange_result";
  }
  return "?";
}

std::string describe(const Channel& channel) {
  return fmt::format("{} channel from device {} to device {}", name_of(channel.purpose), channel.source,
                     channel.destination);
}

std::string size_disagreement(const Channel& channel, std::int64_t number, std::int64_t sent_bytes,
                              std::int64_t expected_bytes) {
  return fmt::format(
      "message {} of the {}: the sender posted {} bytes, the receiver {}; both ends must derive the sequence "
      "of messages and their sizes from the same schedule and model",
      number, describe(channel), sent_bytes, expected_bytes);
}

void throw_stopped(const Channel& channel, std::int64_t number) {
  throw Stopped(fmt::format("gave up waiting for message {} of the {}: another device failed first", number,
                            describe(channel)));
}

std::int64_t PostLedger::enter(Direction direction, const Channel& channel, const void* data,
                               std::int64_t bytes) {
  const bool sends = direction == Direction::kSend;
  const int own_end = sends ? channel.source : channel.destination;
  const int other_end = sends ? channel.destination : channel.source;
  SLIMPIPE_CHECK(own_end == device_, "device {} posted a {} on the {}", device_, sends ? "send" : "receive",
                 describe(channel));
  SLIMPIPE_CHECK(other_end >= first_peer_ && other_end - first_peer_ < peers_ && other_end != device_,
                 "{}, where devices {} to {} can be reached", describe(channel), first_peer_,
                 first_peer_ + peers_ - 1);
  SLIMPIPE_CHECK(bytes >= 0 && (bytes == 0 || data != nullptr), "{} bytes at {} on the {}", bytes, data,
                 describe(channel));
  return posted_[channel]++;
}

}  // namespace slimpipe::comm
