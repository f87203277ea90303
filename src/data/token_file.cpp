#include "slimpipe/data/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

#include "data/token_layout.h"

namespace slimpipe::data {
namespace {

/// A whole regular file mapped for reading; an empty file is an empty span.
class FileMapping {
 public:
  explicit FileMapping(const std::filesystem::path& path) {
    // Not blocking: opening a named pipe must fail below, not wait for its writer.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      throw_input_error("cannot open token file {}: {}; make one with 'slimpipe data prepare'", path.string(),
                        std::strerror(errno));
    }
    descriptor_ = descriptor;
    const int error = map(descriptor);
    if (error != 0) {
      ::close(descriptor);
      throw_input_error(
          "cannot map token file {}: {}; expected a regular file made by 'slimpipe data prepare'",
          path.string(), std::strerror(error));
    }
  }
  ~FileMapping() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    ::close(descriptor_);
  }
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// Whether the file still has what was mapped; touching a mapping past the file's end would end the
  /// process.
  [[nodiscard]] bool whole() const {
    struct stat status {};
    return ::fstat(descriptor_, &status) == 0 && status.st_size >= std::ssize(bytes_);
  }

 private:
  /// Returns the system's error number, 0 on success.
  int map(int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return errno;
    if (S_ISDIR(status.st_mode)) return EISDIR;
    if (!S_ISREG(status.st_mode)) return ENODEV;
    if (status.st_size == 0) return 0;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) return errno;
    bytes_ = {static_cast<const std::byte*>(address), size};
    return 0;
  }

  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
};

/// Widens tokens to ids; returns the index of the first that is outside the vocabulary, or the count.
template <typename Word>
std::size_t widen(const std::byte* from, std::int64_t vocabulary, std::span<std::int32_t> out) {
  const auto* words = reinterpret_cast<const Word*>(from);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::int64_t{words[i]} >= vocabulary) return i;
    out[i] = static_cast<std::int32_t>(words[i]);
  }
  return out.size();
}

}  // namespace

struct TokenFile::Mapping {
  explicit Mapping(const std::filesystem::path& file_path)
      : path(file_path), file(path), layout(check_token_layout(path, file.bytes())) {}

  std::filesystem::path path;
  FileMapping file;
  TokenLayout layout;
};

TokenFile TokenFile::open(const std::filesystem::path& path) {
  return TokenFile(std::make_unique<Mapping>(path));
}

TokenFile::TokenFile(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

std::int64_t TokenFile::tokens() const {
  return std::ssize(mapping_->layout.tokens) / mapping_->layout.token_bytes;
}

std::int64_t TokenFile::documents() const {
  return std::ssize(mapping_->layout.document_starts);
}

std::int64_t TokenFile::vocabulary() const {
  return mapping_->layout.vocabulary;
}

const std::filesystem::path& TokenFile::path() const {
  return mapping_->path;
}

std::int64_t TokenFile::document_start(std::int64_t i) const {
  SLIMPIPE_CHECK(i >= 0 && i < documents(), "document {} of {}", i, documents());
  return static_cast<std::int64_t>(mapping_->layout.document_starts[static_cast<std::size_t>(i)]);
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  SLIMPIPE_CHECK(begin >= 0 && begin <= tokens() && std::ssize(out) <= tokens() - begin,
                 "tokens [{}, +{}) of {}", begin, out.size(), tokens());
  if (!mapping_->file.whole()) {
    throw_input_error(
        "token file {}: it has become shorter since it was opened; leave a file alone while a run reads it",
        path().string());
  }
  const TokenLayout& layout = mapping_->layout;
  const std::byte* from = layout.tokens.data() + begin * layout.token_bytes;
  const std::size_t good = layout.token_bytes == 2 ? widen<std::uint16_t>(from, layout.vocabulary, out)
                                                   : widen<std::uint32_t>(from, layout.vocabulary, out);
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
