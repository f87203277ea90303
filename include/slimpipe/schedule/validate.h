#pragma once
// Proof that a schedule can run.

#include <string>
#include <vector>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// What is wrong with the schedule, empty when it is sound. Each check needs those before it, so the first
/// that fails is the one reported, with all that it found (at most 20 findings and a count of the rest):
///  - the spec has no problems() and every stage has one place;
///  - every (stage, microbatch, slice) has its forward once and its backward once (or input and weight
///    parts once each) on the stage's device; nothing else is there (no backward where not training);
///  - in each chunk microbatches come in order, forwards with slices 0..n-1, backwards n-1..0, a slice's
///    backward after its forward, weight part after input part (fixed order of sums);
///  - between two stages of one device, what the one takes the other has left before;
///  - helps are of keys before the owner's slice, do not overlap, and have an action at both ends;
///  - each channel carries the same sequence at both ends;
///  - no deadlock with sends and receives at the places `expand` puts them: where it stops, a message for
///    every unfinished device says what it waits for. plan_outstanding_sends (channels.h) then bounds the
///    messages in flight so that there is none either.
[[nodiscard]] std::vector<std::string> validate(const Schedule& schedule);

}  // namespace slimpipe::schedule
