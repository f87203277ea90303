#pragma once
// Work that every process does for itself and that must succeed on all of them before any goes on.

#include <functional>
#include <string>

#include "slimpipe/comm/mpi.h"

namespace slimpipe::train {

/// Does `work` on every process; all call it. Where it fails on any, every process throws the failure of the
/// lowest rank, an InputError where that was one, so that all end alike and one can report for all.
void together(comm::MpiSession& processes, const std::function<void()>& work);

/// For a text that must be the same on every process: where it is not, every process throws an InputError
/// that names the lowest rank with another text than rank 0, and the first line that differs. `what` has a
/// text.
void check_same_everywhere(comm::MpiSession& processes, const std::string& what, const std::string& text);

}  // namespace slimpipe::train
