#pragma once
// A file under construction: it has no name, or a temporary one, until it is whole.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace slimpipe::io {

/// When the file under construction gets its temporary name.
enum class TemporaryName : std::uint8_t {
  kWhenWhole,     ///< for the moment of its renaming: a process that is killed leaves nothing behind
  kFromTheStart,  ///< what kWhenWhole falls back to where the file system has no unnamed files
};

/// Every failure is an Error with the final path and the reason. The temporary name is NAME.PROCESS.tmp
/// beside the final one; its file is locked while this lives, so that what a killed process left is told from
/// what another writes. One at a time for a path in a process.
class StagedFile {
 public:
  /// Creates the file, and removes temporary ones of `path` that nobody writes any more. Fails where `path`
  /// is there and no regular file: a folder, a device, a pipe or a link is never replaced.
  explicit StagedFile(const std::filesystem::path& path, TemporaryName when = TemporaryName::kWhenWhole);
  ~StagedFile();  ///< leaves nothing where commit() was not reached
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Appends; not buffered. `what` is the part of the file that a failure names, or empty.
  void write(std::span<const std::byte> data, std::string_view what = {});
  /// Replaces bytes that were appended, such as a header whose counts are known at the end; `offset` is from
  /// the file's start.
  void write_at(std::int64_t offset, std::span<const std::byte> data, std::string_view what = {});
  /// Syncs, renames to the final name and syncs the folder.
  void commit();
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }  ///< appended
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  [[nodiscard]] bool open_unnamed();
  void open_named();
  void give_name();
  void write_all(std::int64_t offset, std::span<const std::byte> data, std::string_view what);
  [[noreturn]] void fail(int error, std::string_view what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  bool named_ = false;  ///< the temporary name is taken
};

}  // namespace slimpipe::io
