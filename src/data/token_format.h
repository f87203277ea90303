#pragma once
// The bytes of a token file as structs; see slimpipe/data/token_file.h for the layout.

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

namespace slimpipe::data {

static_assert(std::endian::native == std::endian::little, "token files are read and written in place");

inline constexpr std::array<char, 8> kTokenMagic = {'S', 'L', 'M', 'T', 'O', 'K', 'v', '1'};
inline constexpr std::uint64_t kSectionAlignment = 64;
/// More sections than any version is expected to have; bounds what a damaged count makes us read.
inline constexpr std::uint32_t kMaxSections = 64;
/// Ids are handled as int32.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 31;
/// Largest vocabulary whose ids fit in two bytes.
inline constexpr std::int64_t kMaxShortVocabulary = std::int64_t{1} << 16;
inline constexpr std::string_view kTokensSection = "tokens";
inline constexpr std::string_view kDocumentsSection = "documents";

struct TokenHeader {
  std::array<char, 8> magic = kTokenMagic;
  std::uint32_t header_bytes = 0;  ///< this struct and the section table
  std::uint32_t token_bytes = 0;   ///< 2 or 4
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t vocabulary = 0;
  std::uint32_t sections = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(TokenHeader) == 48);

struct TokenSection {
  std::array<char, 16> name{};  ///< padded with zeros
  std::uint64_t offset = 0;     ///< from the start of the file, a multiple of kSectionAlignment
  std::uint64_t bytes = 0;
};
static_assert(sizeof(TokenSection) == 32);

}  // namespace slimpipe::data
