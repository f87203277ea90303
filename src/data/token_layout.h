#pragma once
// Checks the bytes of a token file before anything in them is trusted.

#include <cstdint>

#include "slimpipe/io/read_file.h"

namespace slimpipe::data {

/// Where the parts of a checked file are. Counts are positive; both sections lay inside the file.
struct TokenLayout {
  std::int64_t vocabulary = 0;
  std::int64_t token_bytes = 0;  ///< 2 or 4
  std::int64_t tokens = 0;
  std::int64_t tokens_offset = 0;  ///< of the section, from the start of the file
  std::int64_t documents = 0;
  std::int64_t documents_offset = 0;
};

/// Throws InputError with the path and the first problem.
[[nodiscard]] TokenLayout check_token_layout(const io::ReadFile& file);

}  // namespace slimpipe::data
