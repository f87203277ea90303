#include <nlohmann/json.hpp>
#include <set>

#include "slimpipe/core/check.h"
#include "slimpipe/io/safetensors.h"
#include "slimpipe/io/staged_file.h"

#include "io/hash.h"
#include "io/safetensors_format.h"

namespace slimpipe::io {
namespace {

/// Data starts at a multiple of this, so that readers may map it.
constexpr std::size_t kDataAlignment = 8;

void place(std::vector<TensorEntry>& entries) {
  std::set<std::string_view> names;
  std::int64_t end = 0;
  for (TensorEntry& entry : entries) {
    SLIMPIPE_CHECK(entry.name != kMetadataKey && names.insert(entry.name).second,
                   "the tensor name '{}' is reserved or there twice", entry.name);
    const auto bytes = tensor_bytes(entry.dtype, entry.shape);
    SLIMPIPE_CHECK(bytes.has_value(), "the shape of tensor {}", entry.name);
    entry.offset = end;
    entry.bytes = *bytes;
    SLIMPIPE_CHECK(!__builtin_add_overflow(end, *bytes, &end), "the bytes of all tensors up to {}",
                   entry.name);
  }
}

/// The header with its length before it, padded with spaces.
std::string make_header(const std::vector<TensorEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[std::string(kMetadataKey)] = metadata;
  for (const TensorEntry& entry : entries) {
    json[entry.name] = {{"dtype", safetensors_name(entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.offset, entry.offset + entry.bytes}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  SLIMPIPE_CHECK(text.size() <= static_cast<std::size_t>(kMaxHeaderBytes), "a header of {} bytes",
                 text.size());
  const std::uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  return text;
}

}  // namespace

struct SafetensorsWriter::File {
  StagedFile staged;
  StreamHash hash;
  std::vector<TensorEntry> entries;
  std::size_t current = 0;  ///< the entry that is being filled
  std::int64_t filled = 0;  ///< bytes of it
  bool finished = false;

  void write(std::span<const std::byte> data, std::string_view what) {
    staged.write(data, what);
    hash.add(data);
  }

  /// Moves on to the next entry that still lacks data.
  void skip_full_entries() {
    while (current < entries.size() && filled == entries[current].bytes) {
      ++current;
      filled = 0;
    }
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                                     const std::map<std::string, std::string>& metadata) {
  place(entries);
  const std::string header = make_header(entries, metadata);
  file_.reset(new File{.staged = StagedFile(path), .hash = {}, .entries = std::move(entries)});
  file_->write(std::as_bytes(std::span(header)), "its header");
  file_->skip_full_entries();
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(std::span<const std::byte> data) {
  File& file = *file_;
  while (!data.empty()) {
    SLIMPIPE_CHECK(file.current < file.entries.size(), "{} bytes more than {} has tensors for", data.size(),
                   file.staged.path().string());
    const TensorEntry& entry = file.entries[file.current];
    const std::size_t count = std::min(data.size(), static_cast<std::size_t>(entry.bytes - file.filled));
    file.write(data.first(count), fmt::format("tensor {}", entry.name));
    file.filled += static_cast<std::int64_t>(count);
    data = data.subspan(count);
    file.skip_full_entries();
  }
}

SafetensorsWriter::Result SafetensorsWriter::finish() {
  File& file = *file_;
  SLIMPIPE_CHECK(!file.finished, "{} finished twice", file.staged.path().string());
  SLIMPIPE_CHECK(file.current == file.entries.size(), "{} finished with {} of {} bytes of tensor {}",
                 file.staged.path().string(), file.filled, file.entries[file.current].bytes,
                 file.entries[file.current].name);
  file.staged.commit();
  file.finished = true;
  return {.bytes = file.staged.bytes(), .hash = file.hash.value()};
}

}  // namespace slimpipe::io
