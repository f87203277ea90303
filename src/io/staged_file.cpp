#include "slimpipe/io/staged_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

namespace slimpipe::io {
namespace {

constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr int kMode = 0666;  // the process's umask takes away what it must

/// What stands for an open file that has no name.
std::string descriptor_path(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

/// A rename replaces whatever has the name: a device node or a link is not ours to take away.
void refuse_all_but_a_file(const std::filesystem::path& path) {
  if (!path.has_filename()) throw_error("cannot write \"{}\": it names no file", path.string());
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  const char* what = S_ISDIR(status.st_mode)   ? "a folder"
                     : S_ISLNK(status.st_mode) ? "a symbolic link"
                                               : "a device, pipe or socket";
  throw_error("cannot write {}: it is {}, and only a regular file is replaced", path.string(), what);
}

/// Waits for the lock. A file system without locks gives none.
void lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) {
  }
}

/// Whether `name` is `final_name` with a process's number and the suffix: "tokens.1234.tmp".
bool is_temporary_of(std::string_view final_name, std::string_view name) {
  if (!name.starts_with(final_name) || !name.ends_with(kTemporarySuffix)) return false;
  name.remove_prefix(final_name.size());
  if (name.size() < kTemporarySuffix.size() + 2 || name.front() != '.') return false;
  const std::string_view number = name.substr(1, name.size() - 1 - kTemporarySuffix.size());
  return std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
}

/// Removes a temporary file that nobody writes: whoever does holds its lock, on whatever machine that sees
/// the file system, and loses it by ending in any way.
void remove_if_abandoned(const std::filesystem::path& temporary) {
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_at(temporary, descriptor)) {
    ::unlink(temporary.c_str());
  }
  ::close(descriptor);
}

void remove_abandoned(const std::filesystem::path& path) {
  const std::string final_name = path.filename().string();
  std::error_code ignored;  // the folder cannot be read: writing into it will tell what matters
  std::filesystem::directory_iterator entry(folder_of(path), ignored);
  for (; !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    if (is_temporary_of(final_name, entry->path().filename().string())) remove_if_abandoned(entry->path());
  }
}

}  // namespace

StagedFile::StagedFile(const std::filesystem::path& path, TemporaryName when)
    : path_(path), temporary_(fmt::format("{}.{}{}", path.string(), ::getpid(), kTemporarySuffix)) {
  refuse_all_but_a_file(path_);
  remove_abandoned(path_);
  if (when == TemporaryName::kWhenWhole && open_unnamed()) return;
  open_named();
}

/// Some file systems have no unnamed files, and without /proc none gets a name.
bool StagedFile::open_unnamed() {
  descriptor_ = ::open(folder_of(path_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, kMode);
  if (descriptor_ < 0) return false;
  if (::access(descriptor_path(descriptor_).c_str(), F_OK) == 0) {
    lock(descriptor_);
    return true;
  }
  ::close(descriptor_);
  return false;
}

void StagedFile::open_named() {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  // Until it is locked, another process may take the new file for an abandoned one: seldom, and not again and
  // again.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    descriptor_ = ::open(temporary_.c_str(), kFlags, kMode);
    if (descriptor_ < 0) fail(errno, {});
    lock(descriptor_);
    if (is_at(temporary_, descriptor_)) {
      named_ = ::ftruncate(descriptor_, 0) == 0;
      if (named_) return;
      const int error = errno;
      ::close(descriptor_);
      fail(error, {});
    }
    ::close(descriptor_);
  }
  throw_error("cannot write {}: {} is not a file that stays there", path_.string(), temporary_.string());
}

StagedFile::~StagedFile() {
  if (named_) ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void StagedFile::write(std::span<const std::byte> data, std::string_view what) {
  write_all(bytes_, data, what);
  bytes_ += std::ssize(data);
}

void StagedFile::write_at(std::int64_t offset, std::span<const std::byte> data, std::string_view what) {
  SLIMPIPE_CHECK(offset >= 0 && offset <= bytes_ && std::ssize(data) <= bytes_ - offset,
                 "{}: {} bytes at {} of {} written", path_.string(), data.size(), offset, bytes_);
  write_all(offset, data, what);
}

void StagedFile::write_all(std::int64_t offset, std::span<const std::byte> data, std::string_view what) {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(descriptor_, data.data(), data.size(), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno, what);
    }
    data = data.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

void StagedFile::give_name() {
  const std::string unnamed = descriptor_path(descriptor_);
  const auto link = [&] {
    return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  named_ = link();
  if (!named_ && errno == EEXIST) {
    remove_if_abandoned(temporary_);
    named_ = link();
  }
  if (!named_) fail(errno, {});
}

void StagedFile::commit() {
  if (::fsync(descriptor_) != 0) fail(errno, {});
  refuse_all_but_a_file(path_);
  if (!named_) give_name();  // a link replaces nothing, a rename does
  // Still open and locked: an unlocked file under the temporary name counts as abandoned.
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno, {});
  named_ = false;
  sync_directory(folder_of(path_));
}

void StagedFile::fail(int error, std::string_view what) const {
  throw_error("cannot write {}{}{}: {}", path_.string(), what.empty() ? "" : ", ", what,
              system_reason(error));
}

}  // namespace slimpipe::io
