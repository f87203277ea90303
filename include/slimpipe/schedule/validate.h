#pragma once
// Proof that a schedule can run.

#include <string>
#include <vector>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// The rule that bounds messages in flight. Devices and executor keep to it; the proof below assumes no
/// more than it gives.
///
///  - A device reaches action k when its action k-1 is done, its send included. It then posts the receives
///    of actions k and k+1 (those already posted aside). Receives are never posted earlier.
///  - A send never waits for its own receive, but a device may not start send number q of a channel before
///    the receiver has posted the receive of message q - outstanding_sends(spec) of that channel. So that
///    many messages may be on their way with nowhere to go, and the sender needs one buffer more.
///
/// One is what every schedule needs whose neighbours send to each other in the same slot, and it is enough
/// for all of them except SlimPipe with δ ≥ 5. There δ is: on its forward channel a device has received
/// the gradient that proves its neighbour to be at most δ forwards behind, and on its gradient channel it
/// has received the forward that proves its neighbour to be at most δ backwards behind.
[[nodiscard]] int outstanding_sends(const Spec& spec);

/// What is wrong with the schedule, empty when it is sound. Each check needs those before it, so the first
/// that fails is the one reported, with all that it found (at most 20 findings and a count of the rest):
///  - the spec has no problems() and every stage has one place;
///  - every (stage, microbatch, slice) has its forward once and its backward once (or input and weight
///    parts once each) on the stage's device; nothing else is there (no backward where not training);
///  - in each chunk and microbatch forwards go slices 0..n-1, backwards n-1..0, a slice's backward after
///    its forward, weight part after input part; backwards take microbatches in order (fixed order of sums);
///  - each channel carries the same sequence at both ends;
///  - no deadlock under the rule above with sends and receives at the places `expand` puts them: where it
///    stops, a message for every unfinished device says what it waits for.
[[nodiscard]] std::vector<std::string> validate(const Schedule& schedule);

}  // namespace slimpipe::schedule
