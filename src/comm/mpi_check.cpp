#include "comm/mpi_check.h"

#include <array>
#include <mpi.h>
#include <string>

#include "slimpipe/core/check.h"

namespace slimpipe::comm {

void check_mpi(int status, const char* doing) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(status, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw_error("MPI failed to {}: {} (code {})", doing,
              std::string_view(text.data(), static_cast<std::size_t>(length)), status);
}

}  // namespace slimpipe::comm
