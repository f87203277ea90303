#include "data/token_layout.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/core/check.h"

#include "data/token_format.h"

namespace slimpipe::data {
namespace {

/// The file under examination: every problem is reported with its path and the same advice.
struct Examined {
  const std::filesystem::path& path;
  std::span<const std::byte> bytes;

  template <typename... Args>
  void require(bool holds, fmt::format_string<Args...> problem, Args&&... args) const {
    if (holds) return;
    throw_input_error("token file {}: {}; prepare it again with 'slimpipe data prepare'", path.string(),
                      fmt::format(problem, std::forward<Args>(args)...));
  }

  template <typename T>
  [[nodiscard]] T load(std::size_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
  }
};

TokenHeader check_header(const Examined& file) {
  file.require(!file.bytes.empty(), "the file is empty");
  const std::size_t prefix = std::min(file.bytes.size(), kTokenMagic.size());
  file.require(std::memcmp(file.bytes.data(), kTokenMagic.data(), prefix) == 0,
               "this is not a token file: it does not start with {}",
               std::string_view(kTokenMagic.data(), kTokenMagic.size()));
  file.require(file.bytes.size() >= sizeof(TokenHeader), "truncated: {} bytes, the header alone has {}",
               file.bytes.size(), sizeof(TokenHeader));
  const auto header = file.load<TokenHeader>(0);
  file.require(header.token_bytes == 2 || header.token_bytes == 4, "a token has {} bytes, expected 2 or 4",
               header.token_bytes);
  file.require(header.vocabulary >= 1 && header.vocabulary <= std::uint64_t{kMaxVocabulary},
               "the vocabulary is {}, expected 1 to {}", header.vocabulary, kMaxVocabulary);
  file.require(header.token_bytes == 4 || header.vocabulary <= std::uint64_t{kMaxShortVocabulary},
               "a vocabulary of {} does not fit in tokens of 2 bytes", header.vocabulary);
  file.require(header.tokens >= 1, "it holds no tokens");
  file.require(header.documents >= 1 && header.documents <= header.tokens,
               "{} documents with {} tokens, expected 1 to as many as tokens", header.documents,
               header.tokens);
  file.require(header.reserved == 0, "the reserved field is {}, expected 0: made by a later version",
               header.reserved);
  return header;
}

std::string_view name_of(const TokenSection& section) {
  return {section.name.data(), ::strnlen(section.name.data(), section.name.size())};
}

/// A damaged name must not reach a terminal as it is.
std::string printable(std::string_view name) {
  std::string text(name);
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::vector<TokenSection> check_section_table(const Examined& file, const TokenHeader& header) {
  file.require(header.sections <= kMaxSections, "{} sections, expected at most {}", header.sections,
               kMaxSections);
  const std::size_t expected = sizeof(TokenHeader) + header.sections * sizeof(TokenSection);
  file.require(header.header_bytes == expected, "the header has {} bytes, expected {} for {} sections",
               header.header_bytes, expected, header.sections);
  file.require(file.bytes.size() >= expected, "truncated: {} bytes, the section table ends at {}",
               file.bytes.size(), expected);

  std::vector<TokenSection> sections(header.sections);
  std::memcpy(sections.data(), file.bytes.data() + sizeof(TokenHeader),
              sections.size() * sizeof(TokenSection));
  for (const TokenSection& section : sections) {
    const std::string name = printable(name_of(section));
    file.require(section.offset % kSectionAlignment == 0, "section '{}' starts at {}, not a multiple of {}",
                 name, section.offset, kSectionAlignment);
    file.require(section.offset <= file.bytes.size() && section.bytes <= file.bytes.size() - section.offset,
                 "truncated: section '{}' has {} bytes at {}, the file has {}", name, section.bytes,
                 section.offset, file.bytes.size());
  }
  return sections;
}

void check_no_overlap(const Examined& file, const TokenHeader& header, std::vector<TokenSection> sections) {
  std::ranges::sort(sections, {}, [](const TokenSection& s) { return std::pair(s.offset, s.bytes); });
  std::uint64_t end = header.header_bytes;
  for (const TokenSection& section : sections) {
    file.require(section.offset >= end, "section '{}' at {} overlaps what ends at {}",
                 printable(name_of(section)), section.offset, end);
    end = section.offset + section.bytes;
  }
}

/// The bytes of the one section `name`, which must be `count` elements of `size` bytes.
std::span<const std::byte> find_section(const Examined& file, const std::vector<TokenSection>& sections,
                                        std::string_view name, std::uint64_t count, std::uint64_t size) {
  const auto named = [name](const TokenSection& s) { return name_of(s) == name; };
  const auto found = std::ranges::find_if(sections, named);
  file.require(found != sections.end(), "it has no section '{}'", name);
  file.require(std::ranges::count_if(sections, named) == 1, "it has more than one section '{}'", name);
  // Divided, not multiplied: the count is not trusted and the product could wrap.
  file.require(found->bytes % size == 0 && found->bytes / size == count,
               "section '{}' has {} bytes, expected {} times {}", name, found->bytes, count, size);
  return file.bytes.subspan(found->offset, found->bytes);
}

std::span<const std::uint64_t> check_documents(const Examined& file, std::span<const std::byte> section,
                                               std::uint64_t tokens) {
  const std::span starts(reinterpret_cast<const std::uint64_t*>(section.data()),
                         section.size() / sizeof(std::uint64_t));
  file.require(starts[0] == 0, "the first document starts at token {}, expected 0", starts[0]);
  for (std::size_t i = 1; i < starts.size(); ++i) {
    file.require(starts[i] > starts[i - 1], "document {} starts at token {}, not after document {} at {}", i,
                 starts[i], i - 1, starts[i - 1]);
  }
  file.require(starts.back() < tokens, "document {} starts at token {} of {}", starts.size() - 1,
               starts.back(), tokens);
  return starts;
}

}  // namespace

TokenLayout check_token_layout(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Examined file{path, bytes};
  const TokenHeader header = check_header(file);
  const std::vector<TokenSection> sections = check_section_table(file, header);
  check_no_overlap(file, header, sections);

  TokenLayout layout;
  layout.vocabulary = static_cast<std::int64_t>(header.vocabulary);
  layout.token_bytes = static_cast<int>(header.token_bytes);
  layout.tokens = find_section(file, sections, kTokensSection, header.tokens, header.token_bytes);
  const auto documents =
      find_section(file, sections, kDocumentsSection, header.documents, sizeof(std::uint64_t));
  layout.document_starts = check_documents(file, documents, header.tokens);
  return layout;
}

}  // namespace slimpipe::data
