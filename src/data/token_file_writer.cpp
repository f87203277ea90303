#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/data/token_file.h"

#include "data/token_format.h"

namespace slimpipe::data {
namespace {

constexpr std::uint32_t kWrittenSections = 2;
constexpr std::uint64_t kHeaderBytes = sizeof(TokenHeader) + kWrittenSections * sizeof(TokenSection);

constexpr std::uint64_t align(std::uint64_t offset) {
  return (offset + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

constexpr std::uint64_t kTokensOffset = align(kHeaderBytes);

/// Beside `path`, so that the rename stays in one file system.
std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.string() + fmt::format(".{}.tmp", ::getpid());
}

[[noreturn]] void write_failed(const std::filesystem::path& path) {
  throw_error("cannot write token file {}: {}", path.string(), std::strerror(errno));
}

void sync(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) write_failed(path);
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  // Some network file systems refuse to sync a folder; nothing more can be done there.
  if (status != 0 && error != EINVAL) write_failed(path);
}

TokenSection section(std::string_view name, std::uint64_t offset, std::uint64_t bytes) {
  TokenSection entry{.name = {}, .offset = offset, .bytes = bytes};
  std::ranges::copy(name, entry.name.begin());
  return entry;
}

}  // namespace

struct TokenFileWriter::State {
  std::filesystem::path path;
  std::filesystem::path temporary;
  std::ofstream stream;
  std::int64_t vocabulary = 0;
  std::uint32_t token_bytes = 0;
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> document_starts;
  bool inside_document = false;
  bool finished = false;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (finished || temporary.empty()) return;
    stream.close();
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
  }

  void write(const void* data, std::size_t bytes) {
    errno = 0;
    if (!stream.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes)))
      write_failed(path);
  }

  void pad_to(std::uint64_t from, std::uint64_t to) {
    constexpr std::array<char, kSectionAlignment> kZeros{};
    while (from < to) {
      const auto count = std::min<std::uint64_t>(kZeros.size(), to - from);
      write(kZeros.data(), count);
      from += count;
    }
  }

  /// Tokens are narrowed through a small buffer, so that a long document costs no copy of itself.
  template <typename Word>
  void write_narrow(std::span<const std::int32_t> from) {
    std::array<Word, 4096> words;
    while (!from.empty()) {
      const auto part = from.first(std::min(from.size(), words.size()));
      std::ranges::transform(part, words.begin(),
                             [](std::int32_t token) { return static_cast<Word>(token); });
      write(words.data(), part.size() * sizeof(Word));
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
    errno = 0;
    if (!stream.seekp(0)) write_failed(path);
    write(&header, sizeof(header));
    write(table.data(), sizeof(table));
  }
};

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary)
    : state_(std::make_unique<State>()) {
  SLIMPIPE_CHECK(vocabulary >= 1 && vocabulary <= kMaxVocabulary, "vocabulary {}", vocabulary);
  State& s = *state_;
  s.path = path;
  s.vocabulary = vocabulary;
  s.token_bytes = vocabulary <= kMaxShortVocabulary ? 2 : 4;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw_input_error("cannot write token file {}: it is a folder; name a file in it", path.string());
  }
  const std::filesystem::path temporary = temporary_name(path);
  errno = 0;
  s.stream.open(temporary, std::ios::binary | std::ios::trunc);
  if (!s.stream) {
    throw_input_error("cannot create token file {}: {}; name a file in a folder that can be written to",
                      path.string(), std::strerror(errno));
  }
  s.temporary = temporary;
  s.pad_to(0, kTokensOffset);  // the header's place; its counts are known at the end
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) return;
  State& s = *state_;
  const auto outside =
      std::ranges::find_if(tokens, [&s](std::int32_t t) { return t < 0 || t >= s.vocabulary; });
  if (outside != tokens.end()) {
    throw_input_error("cannot write token file {}: token {} is {}, outside the vocabulary of {}",
                      s.path.string(), s.tokens + static_cast<std::uint64_t>(outside - tokens.begin()),
                      *outside, s.vocabulary);
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
  SLIMPIPE_CHECK(!s.finished, "token file {} finished twice", s.path.string());
  if (s.tokens == 0) {
    throw_input_error("cannot write token file {}: there is no text to put into it", s.path.string());
  }
  const std::uint64_t token_section_bytes = s.tokens * s.token_bytes;
  const std::uint64_t documents_offset = align(kTokensOffset + token_section_bytes);
  s.pad_to(kTokensOffset + token_section_bytes, documents_offset);
  s.write(s.document_starts.data(), s.document_starts.size() * sizeof(std::uint64_t));
  s.write_header(token_section_bytes, documents_offset);
  errno = 0;
  s.stream.close();
  if (!s.stream) write_failed(s.path);

  sync(s.temporary);
  if (::rename(s.temporary.c_str(), s.path.c_str()) != 0) write_failed(s.path);
  s.finished = true;
  const std::filesystem::path folder = s.path.parent_path();
  sync(folder.empty() ? "." : folder);
}

std::int64_t TokenFileWriter::tokens() const {
  return static_cast<std::int64_t>(state_->tokens);
}

std::int64_t TokenFileWriter::documents() const {
  return std::ssize(state_->document_starts);
}

}  // namespace slimpipe::data
