#include "data/token_layout.h"

#include <algorithm>
#include <array>
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
  const io::ReadFile& file;

  template <typename... Args>
  void require(bool holds, fmt::format_string<Args...> problem, Args&&... args) const {
    if (holds) return;
    throw_input_error("token file {}: {}; prepare it again with 'slimpipe data prepare'",
                      file.path().string(), fmt::format(problem, std::forward<Args>(args)...));
  }

  [[nodiscard]] std::uint64_t bytes() const { return static_cast<std::uint64_t>(file.bytes()); }

  template <typename T>
  void load(std::uint64_t offset, std::span<T> out) const {
    const std::size_t got = file.read(static_cast<std::int64_t>(offset), std::as_writable_bytes(out));
    require(got == out.size_bytes(), "it became shorter while it was opened");
  }
};

TokenHeader check_header(const Examined& file) {
  file.require(file.bytes() > 0, "the file is empty");
  TokenHeader header;
  const std::size_t present = std::min<std::size_t>(file.bytes(), sizeof(header));
  file.load(0, std::as_writable_bytes(std::span(&header, 1)).first(present));
  const std::size_t prefix = std::min(present, kTokenMagic.size());
  file.require(std::memcmp(header.magic.data(), kTokenMagic.data(), prefix) == 0,
               "this is not a token file: it does not start with {}",
               std::string_view(kTokenMagic.data(), kTokenMagic.size()));
  file.require(present == sizeof(header), "truncated: {} bytes, the header alone has {}", present,
               sizeof(header));
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
  file.require(file.bytes() >= expected, "truncated: {} bytes, the section table ends at {}", file.bytes(),
               expected);

  std::vector<TokenSection> sections(header.sections);
  file.load(sizeof(TokenHeader), std::span(sections));
  for (const TokenSection& section : sections) {
    const std::string name = printable(name_of(section));
    const auto padding = std::span(section.name).subspan(name.size());
    file.require(std::ranges::all_of(padding, [](char c) { return c == '\0'; }),
                 "the name of section '{}' is not padded with zeros", name);
    file.require(section.offset % kSectionAlignment == 0, "section '{}' starts at {}, not a multiple of {}",
                 name, section.offset, kSectionAlignment);
    file.require(section.offset <= file.bytes() && section.bytes <= file.bytes() - section.offset,
                 "truncated: section '{}' has {} bytes at {}, the file has {}", name, section.bytes,
                 section.offset, file.bytes());
  }
  return sections;
}

std::vector<TokenSection> in_order(std::vector<TokenSection> sections) {
  std::ranges::sort(sections, {}, [](const TokenSection& s) { return std::pair(s.offset, s.bytes); });
  return sections;
}

void check_no_overlap(const Examined& file, const TokenHeader& header,
                      const std::vector<TokenSection>& sections) {
  std::uint64_t end = header.header_bytes;
  for (const TokenSection& section : sections) {
    file.require(section.offset >= end, "section '{}' at {} overlaps what ends at {}",
                 printable(name_of(section)), section.offset, end);
    end = section.offset + section.bytes;
  }
}

/// Less than an alignment of zeros before each section, and nothing behind the last: what is there besides
/// was not written by whoever wrote the file. The sections do not overlap.
void check_padding(const Examined& file, const TokenHeader& header,
                   const std::vector<TokenSection>& sections) {
  std::uint64_t end = header.header_bytes;
  for (const TokenSection& section : sections) {
    const std::uint64_t bytes = section.offset - end;
    file.require(bytes < kSectionAlignment, "{} bytes before section '{}' belong to no section", bytes,
                 printable(name_of(section)));
    std::array<char, kSectionAlignment> padding{};
    file.load(end, std::span(padding).first(bytes));
    file.require(std::ranges::all_of(padding, [](char c) { return c == '\0'; }),
                 "the padding before section '{}' is not zero", printable(name_of(section)));
    end = section.offset + section.bytes;
  }
  file.require(end == file.bytes(), "{} bytes follow its last section, which ends at {}", file.bytes() - end,
               end);
}

/// Where the one section `name` is, which must be `count` elements of `size` bytes.
std::uint64_t find_section(const Examined& file, const std::vector<TokenSection>& sections,
                           std::string_view name, std::uint64_t count, std::uint64_t size) {
  const auto named = [name](const TokenSection& s) { return name_of(s) == name; };
  const auto found = std::ranges::find_if(sections, named);
  file.require(found != sections.end(), "it has no section '{}'", name);
  file.require(std::ranges::count_if(sections, named) == 1, "it has more than one section '{}'", name);
  // Divided, not multiplied: the count is not trusted and the product could wrap.
  file.require(found->bytes % size == 0 && found->bytes / size == count,
               "section '{}' has {} bytes, expected {} times {}", name, found->bytes, count, size);
  return found->offset;
}

/// The documents' starts ascend from 0 to below the token count.
void check_documents(const Examined& file, const TokenHeader& header, std::uint64_t offset) {
  constexpr std::uint64_t kChunk = 8192;  // starts read at once
  std::vector<std::uint64_t> starts(std::min(kChunk, header.documents));
  std::uint64_t previous = 0;
  for (std::uint64_t first = 0; first < header.documents; first += kChunk) {
    const auto chunk = std::span(starts).first(std::min(kChunk, header.documents - first));
    file.load(offset + first * sizeof(std::uint64_t), chunk);
    for (std::uint64_t i = first; i < first + chunk.size(); ++i) {
      const std::uint64_t start = chunk[i - first];
      file.require(i > 0 || start == 0, "the first document starts at token {}, expected 0", start);
      file.require(i == 0 || start > previous, "document {} starts at token {}, not after document {} at {}",
                   i, start, i - 1, previous);
      previous = start;
    }
  }
  file.require(previous < header.tokens, "document {} starts at token {} of {}", header.documents - 1,
               previous, header.tokens);
}

}  // namespace

TokenLayout check_token_layout(const io::ReadFile& read_file) {
  const Examined file{read_file};
  const TokenHeader header = check_header(file);
  const std::vector<TokenSection> sections = in_order(check_section_table(file, header));
  check_no_overlap(file, header, sections);
  const std::uint64_t tokens =
      find_section(file, sections, kTokensSection, header.tokens, header.token_bytes);
  const std::uint64_t documents =
      find_section(file, sections, kDocumentsSection, header.documents, sizeof(std::uint64_t));
  check_padding(file, header, sections);
  check_documents(file, header, documents);
  return {.vocabulary = static_cast<std::int64_t>(header.vocabulary),
          .token_bytes = header.token_bytes,
          .tokens = static_cast<std::int64_t>(header.tokens),
          .tokens_offset = static_cast<std::int64_t>(tokens),
          .documents = static_cast<std::int64_t>(header.documents),
          .documents_offset = static_cast<std::int64_t>(documents)};
}

}  // namespace slimpipe::data
