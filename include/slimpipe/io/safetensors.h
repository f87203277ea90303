#pragma once
// The safetensors format: u64 header length, JSON header, data. Reads by name and byte range, writes
// streaming.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slimpipe/core/dtype.h"

namespace slimpipe::io {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< from the start of the data section
  std::int64_t bytes = 0;
};

/// Reads a file; entries are in the order of their data. The header is checked against the file's size before
/// anything is trusted (lengths, bounds, overlaps, shape × dtype = bytes); every problem is an InputError
/// with file and tensor. What the file says about itself under "__metadata__" is checked and left.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  [[nodiscard]] const std::vector<TensorEntry>& entries() const;
  /// nullptr where there is no such tensor.
  [[nodiscard]] const TensorEntry* find(const std::string& name) const;
  /// Bytes [begin, begin + out.size()) of the tensor. Thread-safe.
  void read(const TensorEntry& entry, std::int64_t begin, std::span<std::byte> out) const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

/// Writes a file: all entries are declared first (name, dtype, shape; offset and bytes are computed), then
/// data is appended in that order, in pieces of any size. The file has a temporary name until finish(), which
/// fsyncs, renames and returns the xxh3-64 hash of the whole file. A failed write throws
/// Error with file, tensor and the system's reason.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();  ///< removes the temporary file where finish() was not reached
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  void append(std::span<const std::byte> data);
  struct Result {
    std::int64_t bytes = 0;
    std::uint64_t hash = 0;
  };
  Result finish();

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace slimpipe::io
