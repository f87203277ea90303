#pragma once
// Sleeps of tens of microseconds between polls.

namespace slimpipe::comm {

/// Linux may end a sleep 50 us late, to save wake-ups: as much again as a poll interval. Asks for 1 us for
/// the calling thread, from now on.
void allow_short_sleeps();

}  // namespace slimpipe::comm
