#include "slimpipe/data/token_file.h"

#include <algorithm>
#include <utility>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"
#include "slimpipe/io/read_file.h"

#include "data/token_layout.h"

namespace slimpipe::data {
namespace {

/// Widens tokens to ids; returns the index of the first that is outside the vocabulary, or the count.
template <typename Word>
std::size_t widen(std::span<const std::byte> from, std::int64_t vocabulary, std::span<std::int32_t> out) {
  const auto* words = reinterpret_cast<const Word*>(from.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::int64_t{words[i]} >= vocabulary) return i;
    out[i] = static_cast<std::int32_t>(words[i]);
  }
  return out.size();
}

io::ReadFile open_file(const std::filesystem::path& path) try {
  return io::ReadFile(path);
} catch (const InputError& problem) {
  throw_input_error("token file: {}; make one with 'slimpipe data prepare'", problem.what());
}

}  // namespace

/// Read, never mapped: a mapped page that is gone (the file was cut, the network file system failed) ends the
/// process with SIGBUS instead of an error.
struct TokenFile::State {
  explicit State(const std::filesystem::path& path)
      : file(open_file(path)), layout(check_token_layout(file)) {}

  void read(std::int64_t offset, std::span<std::byte> out) const {
    if (file.read(offset, out) == out.size()) return;
    throw_input_error(
        "token file {}: it has become shorter since it was opened; leave a file alone while a run reads it",
        file.path().string());
  }

  io::ReadFile file;
  TokenLayout layout;
};

TokenFile TokenFile::open(const std::filesystem::path& path) {
  return TokenFile(std::make_unique<State>(path));
}

TokenFile::TokenFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

std::int64_t TokenFile::tokens() const {
  return state_->layout.tokens;
}

std::int64_t TokenFile::documents() const {
  return state_->layout.documents;
}

std::int64_t TokenFile::vocabulary() const {
  return state_->layout.vocabulary;
}

const std::filesystem::path& TokenFile::path() const {
  return state_->file.path();
}

std::int64_t TokenFile::document_start(std::int64_t i) const {
  SLIMPIPE_CHECK(i >= 0 && i < documents(), "document {} of {}", i, documents());
  std::int64_t start = 0;
  const std::int64_t place = i * static_cast<std::int64_t>(sizeof(start));
  state_->read(state_->layout.documents_offset + place, std::as_writable_bytes(std::span(&start, 1)));
  return start;
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  SLIMPIPE_CHECK(begin >= 0 && begin <= tokens() && std::ssize(out) <= tokens() - begin,
                 "tokens [{}, +{}) of {}", begin, out.size(), tokens());
  const TokenLayout& layout = state_->layout;
  std::vector<std::byte> bytes(out.size() * static_cast<std::size_t>(layout.token_bytes));
  state_->read(layout.tokens_offset + begin * layout.token_bytes, bytes);
  const std::size_t good = layout.token_bytes == 2 ? widen<std::uint16_t>(bytes, layout.vocabulary, out)
                                                   : widen<std::uint32_t>(bytes, layout.vocabulary, out);
  if (good < out.size()) {
    throw_input_error(
        "token file {}: token {} is outside its vocabulary of {}; prepare it again with 'slimpipe data "
        "prepare'",
        path().string(), begin + static_cast<std::int64_t>(good), layout.vocabulary);
  }
}

std::uint64_t TokenFile::fingerprint() const {
  // 1 MiB of ids at most; a block is read at the cost of a page.
  constexpr std::int64_t kBlocks = 256;
  constexpr std::int64_t kBlockTokens = 1024;
  if (tokens() <= kBlocks * kBlockTokens) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokens()));
    read(0, all);
    return io::hash_bytes(std::as_bytes(std::span(all)));
  }
  std::vector<std::int32_t> ids(kBlocks * kBlockTokens);
  const std::int64_t last = tokens() - kBlockTokens;
  for (std::int64_t block = 0; block < kBlocks; ++block) {
    // The first block starts the file and the last one ends it. Divided first: the product could overflow.
    const std::int64_t begin = last / (kBlocks - 1) * block + last % (kBlocks - 1) * block / (kBlocks - 1);
    read(begin, std::span(ids).subspan(static_cast<std::size_t>(block * kBlockTokens), kBlockTokens));
  }
  return io::hash_bytes(std::as_bytes(std::span(ids)));
}

void TokenFile::verify() const {
  constexpr std::int64_t kChunk = 1 << 16;  // tokens
  std::vector<std::int32_t> chunk(static_cast<std::size_t>(std::min(kChunk, tokens())));
  for (std::int64_t begin = 0; begin < tokens(); begin += kChunk) {
    const auto count = static_cast<std::size_t>(std::min(kChunk, tokens() - begin));
    read(begin, std::span(chunk).first(count));
  }
}

}  // namespace slimpipe::data
