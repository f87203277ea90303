#pragma once
// Token files for tests, through the writer and byte by byte.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "slimpipe/data/token_file.h"

namespace slimpipe::test {

/// Writes documents of the given tokens.
inline void write_token_file(const std::filesystem::path& path, std::int64_t vocabulary,
                             const std::vector<std::vector<std::int32_t>>& documents) {
  data::TokenFileWriter writer(path, vocabulary);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

/// One document 0, 1, 2, … modulo `vocabulary`.
inline void write_counting_file(const std::filesystem::path& path, std::int64_t tokens,
                                std::int64_t vocabulary = 1 << 20) {
  std::vector<std::int32_t> document(static_cast<std::size_t>(tokens));
  for (std::int64_t i = 0; i < tokens; ++i) {
    document[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % vocabulary);
  }
  write_token_file(path, vocabulary, {document});
}

inline std::vector<std::int32_t> all_tokens(const data::TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

/// Overwrites the integer at a byte offset.
template <typename T>
void poke(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

}  // namespace slimpipe::test
