#pragma once
// MPI status codes as errors.

namespace slimpipe::comm {

/// Throws Error with MPI's text where `status` is not MPI_SUCCESS; `doing` completes "MPI failed to ...".
void check_mpi(int status, const char* doing);

}  // namespace slimpipe::comm
