#pragma once
// Proof that a schedule can run.

#include <string>
#include <vector>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// Everything wrong with the schedule, empty when it is sound:
///  - every (stage, microbatch, slice) has its forward once and its backward once (or input and weight
///    parts once each) on the stage's device; nothing else is there;
///  - in each chunk and microbatch forwards go slices 0..n-1, backwards n-1..0, a slice's backward after
///    its forward, weight part after input part; backwards take microbatches in order (fixed order of sums);
///  - each channel carries the same sequence at both ends;
///  - no deadlock with blocking (rendezvous) sends at the places `expand` puts them: where it stops, the
///    message lists what every device waits for.
[[nodiscard]] std::vector<std::string> validate(const Schedule& schedule);

}  // namespace slimpipe::schedule
