#pragma once
// What a message of the schedule is to the transport, and to a reader.

#include "slimpipe/comm/transport.h"
#include "slimpipe/schedule/channels.h"

namespace slimpipe::runtime {

[[nodiscard]] comm::Purpose purpose_of(schedule::Payload payload);
/// The tensor that a channel's messages are, in words.
[[nodiscard]] const char* content_of(comm::Purpose purpose);

}  // namespace slimpipe::runtime
