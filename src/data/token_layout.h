#pragma once
// Checks the bytes of a token file before anything in them is trusted.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace slimpipe::data {

/// Where the parts of a checked file are. Counts are positive; both spans lie inside the file and are
/// aligned to their elements.
struct TokenLayout {
  std::int64_t vocabulary = 0;
  int token_bytes = 0;                             ///< 2 or 4
  std::span<const std::byte> tokens;               ///< [token count × token_bytes]
  std::span<const std::uint64_t> document_starts;  ///< [document count]
};

/// `file` is the whole file, aligned to a page. Throws InputError with the path and the first problem.
[[nodiscard]] TokenLayout check_token_layout(const std::filesystem::path& path,
                                             std::span<const std::byte> file);

}  // namespace slimpipe::data
