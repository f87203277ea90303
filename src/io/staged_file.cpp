#include "slimpipe/io/staged_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

namespace slimpipe::io {

StagedFile::StagedFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + fmt::format(".{}.tmp", ::getpid())) {
  constexpr int kMode = 0666;  // the process's umask takes away what it must
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (descriptor_ < 0) fail(errno, {});
}

StagedFile::~StagedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(temporary_.c_str());
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

void StagedFile::commit() {
  if (::fsync(descriptor_) != 0) fail(errno, {});
  close();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno, {});
  committed_ = true;
  const std::filesystem::path folder = path_.parent_path();
  sync_directory(folder.empty() ? "." : folder);
}

void StagedFile::close() {
  const int status = ::close(descriptor_);
  descriptor_ = -1;
  if (status != 0) fail(errno, {});  // network file systems report lost writes here
}

void StagedFile::fail(int error, std::string_view what) const {
  throw_error("cannot write {}{}{}: {}", path_.string(), what.empty() ? "" : ", ", what,
              std::strerror(error));
}

}  // namespace slimpipe::io
