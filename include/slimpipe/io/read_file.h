#pragma once
// A regular file opened for reading at given places.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace slimpipe::io {

class ReadFile {
 public:
  /// Throws InputError with path and reason where it cannot be opened or is no regular file.
  explicit ReadFile(const std::filesystem::path& path);
  ~ReadFile();
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// At the time of opening.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Fills `out` from `offset` on; returns how much there was, less than asked only at the end of the file.
  /// Thread-safe.
  [[nodiscard]] std::size_t read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace slimpipe::io
