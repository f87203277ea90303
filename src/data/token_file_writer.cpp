#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/data/token_file.h"
#include "slimpipe/io/staged_file.h"

#include "data/token_format.h"

namespace slimpipe::data {
namespace {

constexpr std::uint32_t kWrittenSections = 2;
constexpr std::uint64_t kHeaderBytes = sizeof(TokenHeader) + kWrittenSections * sizeof(TokenSection);

constexpr std::uint64_t align(std::uint64_t offset) {
  return (offset + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

constexpr std::uint64_t kTokensOffset = align(kHeaderBytes);

/// Documents may be a few tokens long; the file is not written in such crumbs.
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

TokenSection section(std::string_view name, std::uint64_t offset, std::uint64_t bytes) {
  TokenSection entry{.name = {}, .offset = offset, .bytes = bytes};
  std::ranges::copy(name, entry.name.begin());
  return entry;
}

}  // namespace

struct TokenFileWriter::State {
  io::StagedFile file;
  std::vector<std::byte> buffer;  ///< the file's end, not yet written
  std::int64_t vocabulary = 0;
  std::uint32_t token_bytes = 0;
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> document_starts;
  bool inside_document = false;
  bool finished = false;

  State(const std::filesystem::path& path, std::int64_t vocabulary_size)
      : file(path), vocabulary(vocabulary_size), token_bytes(vocabulary_size <= kMaxShortVocabulary ? 2 : 4) {
    buffer.reserve(kBufferBytes);
  }

  [[nodiscard]] std::string path() const { return file.path().string(); }

  void write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const auto part = data.first(std::min(data.size(), kBufferBytes - buffer.size()));
      buffer.insert(buffer.end(), part.begin(), part.end());
      data = data.subspan(part.size());
      if (buffer.size() == kBufferBytes) flush();
    }
  }

  void flush() {
    file.write(buffer);
    buffer.clear();
  }

  /// Less than an alignment's zeros, or the header's place.
  void pad(std::uint64_t bytes) { write(std::vector<std::byte>(bytes)); }

  /// Tokens are narrowed through a small buffer, so that a long document costs no copy of itself.
  template <typename Word>
  void write_narrow(std::span<const std::int32_t> from) {
    std::array<Word, 4096> words;
    while (!from.empty()) {
      const auto part = from.first(std::min(from.size(), words.size()));
      std::ranges::transform(part, words.begin(),
                             [](std::int32_t token) { return static_cast<Word>(token); });
      write(std::as_bytes(std::span(words).first(part.size())));
      from = from.subspan(part.size());
    }
  }

  void write_header(std::uint64_t token_section_bytes, std::uint64_t documents_offset) {
    TokenHeader header;
    header.header_bytes = kHeaderBytes;
    header.token_bytes = token_bytes;
    header.tokens = tokens;
    header.documents = document_starts.size();
    header.vocabulary = static_cast<std::uint64_t>(vocabulary);
    header.sections = kWrittenSections;
    const std::array<TokenSection, kWrittenSections> table = {
        section(kTokensSection, kTokensOffset, token_section_bytes),
        section(kDocumentsSection, documents_offset, document_starts.size() * sizeof(std::uint64_t))};
    file.write_at(0, std::as_bytes(std::span(&header, 1)), "its header");
    file.write_at(sizeof(header), std::as_bytes(std::span(table)), "its header");
  }
};

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary) {
  SLIMPIPE_CHECK(vocabulary >= 1 && vocabulary <= kMaxVocabulary, "vocabulary {}", vocabulary);
  try {
    state_ = std::make_unique<State>(path, vocabulary);
  } catch (const Error& error) {
    throw_input_error("token file: {}; name a file in a folder that can be written to", error.what());
  }
  state_->pad(kTokensOffset);  // the header's place; its counts are known at the end
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) return;
  State& s = *state_;
  const auto outside =
      std::ranges::find_if(tokens, [&s](std::int32_t t) { return t < 0 || t >= s.vocabulary; });
  if (outside != tokens.end()) {
    throw_input_error("cannot write token file {}: token {} is {}, outside the vocabulary of {}", s.path(),
                      s.tokens + static_cast<std::uint64_t>(outside - tokens.begin()), *outside,
                      s.vocabulary);
  }
  if (!s.inside_document) s.document_starts.push_back(s.tokens);
  s.inside_document = true;
  if (s.token_bytes == 2) {
    s.write_narrow<std::uint16_t>(tokens);
  } else {
    s.write_narrow<std::uint32_t>(tokens);
  }
  s.tokens += tokens.size();
}

void TokenFileWriter::end_document() {
  state_->inside_document = false;
}

void TokenFileWriter::finish() {
  State& s = *state_;
  SLIMPIPE_CHECK(!s.finished, "token file {} finished twice", s.path());
  if (s.tokens == 0) {
    throw_input_error("cannot write token file {}: there is no text to put into it", s.path());
  }
  const std::uint64_t token_section_bytes = s.tokens * s.token_bytes;
  const std::uint64_t documents_offset = align(kTokensOffset + token_section_bytes);
  s.pad(documents_offset - (kTokensOffset + token_section_bytes));
  s.write(std::as_bytes(std::span(s.document_starts)));
  s.flush();
  s.write_header(token_section_bytes, documents_offset);
  s.file.commit();
  s.finished = true;
}

std::int64_t TokenFileWriter::tokens() const {
  return static_cast<std::int64_t>(state_->tokens);
}

std::int64_t TokenFileWriter::documents() const {
  return std::ssize(state_->document_starts);
}

}  // namespace slimpipe::data
