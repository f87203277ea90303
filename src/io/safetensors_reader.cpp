#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "slimpipe/core/check.h"
#include "slimpipe/io/read_file.h"
#include "slimpipe/io/safetensors.h"

#include "io/safetensors_format.h"
#include "io/safetensors_header.h"

namespace slimpipe::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read in place");

void read_exactly(const ReadFile& file, std::int64_t offset, std::span<std::byte> out) {
  if (file.read(offset, out) != out.size()) {
    throw_input_error("safetensors file {} has become shorter while it is read; make it again",
                      file.path().string());
  }
}

std::int64_t read_header_bytes(const ReadFile& file) {
  if (file.bytes() < kLengthBytes) {
    throw_input_error(
        "safetensors file {} has {} bytes, the length of its header alone has {}; it is truncated",
        file.path().string(), file.bytes(), kLengthBytes);
  }
  std::uint64_t length = 0;
  read_exactly(file, 0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes) ||
      length > static_cast<std::uint64_t>(file.bytes() - kLengthBytes)) {
    throw_input_error(
        "safetensors file {}: its header has {} bytes, expected at most {} and to fit in the file's {}; it "
        "is "
        "truncated or not of this format",
        file.path().string(), length, kMaxHeaderBytes, file.bytes());
  }
  return static_cast<std::int64_t>(length);
}

std::vector<TensorEntry> read_entries(const ReadFile& file, std::int64_t header_bytes) {
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  read_exactly(file, kLengthBytes, std::as_writable_bytes(std::span(text)));
  return parse_safetensors_header(file.path(), text, file.bytes() - kLengthBytes - header_bytes);
}

}  // namespace

struct SafetensorsReader::File {
  explicit File(const std::filesystem::path& path)
      : file(path), header_bytes(read_header_bytes(file)), entries(read_entries(file, header_bytes)) {
    for (std::size_t i = 0; i < entries.size(); ++i) index.emplace(entries[i].name, i);
  }

  ReadFile file;
  std::int64_t header_bytes;
  std::vector<TensorEntry> entries;
  std::map<std::string, std::size_t> index;  ///< name -> place in entries
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(std::make_unique<File>(path)) {}
SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;

const std::vector<TensorEntry>& SafetensorsReader::entries() const {
  return file_->entries;
}

const TensorEntry* SafetensorsReader::find(const std::string& name) const {
  const auto found = file_->index.find(name);
  return found == file_->index.end() ? nullptr : &file_->entries[found->second];
}

void SafetensorsReader::read(const TensorEntry& entry, std::int64_t begin, std::span<std::byte> out) const {
  SLIMPIPE_CHECK(begin >= 0 && begin <= entry.bytes && std::ssize(out) <= entry.bytes - begin,
                 "bytes [{}, +{}) of {} of tensor {}", begin, out.size(), entry.bytes, entry.name);
  read_exactly(file_->file, kLengthBytes + file_->header_bytes + entry.offset + begin, out);
}

}  // namespace slimpipe::io
