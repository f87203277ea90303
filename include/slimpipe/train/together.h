#pragma once
// Work that every process does for itself and that must succeed on all of them before any goes on.

#include <functional>

#include "slimpipe/comm/mpi.h"

namespace slimpipe::train {

/// Does `work` on every process; all call it. Where it fails on any, every process throws the failure of the
/// lowest rank, an InputError where that was one, so that all end alike and one can report for all.
void together(comm::MpiSession& processes, const std::function<void()>& work);

}  // namespace slimpipe::train
