#include "slimpipe/io/files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/io/read_file.h"
#include "slimpipe/io/staged_file.h"

#include "io/hash.h"

namespace slimpipe::io {

std::string read_text(const std::filesystem::path& path, std::int64_t limit) {
  const ReadFile file(path);
  if (file.bytes() > limit) {
    throw_input_error("{} has {} bytes, expected at most {}", path.string(), file.bytes(), limit);
  }
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  text.resize(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

bool is_at(const std::filesystem::path& path, int descriptor) {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && S_ISREG(open.st_mode) &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

void write_text_atomically(const std::filesystem::path& path, std::string_view text) {
  StagedFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string system_reason(int error) {
  const char* advice = error == ENOSPC   ? " (free space there, or write elsewhere)"
                       : error == EDQUOT ? " (free space there, have the quota raised, or write elsewhere)"
                       : error == EFBIG  ? " (raise the limit on file sizes, ulimit -f)"
                       : error == EMFILE ? " (raise the limit on open files, ulimit -n)"
                                         : "";
  return std::string(std::strerror(error)) + advice;
}

void sync_directory(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_error("cannot sync the folder {}: {}", path.string(), system_reason(errno));
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some network file systems do not sync folders and say so by EINVAL; nothing more can be done there.
  if (error != 0 && error != EINVAL) {
    throw_error("cannot sync the folder {}: {}", path.string(), system_reason(error));
  }
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  StreamHash hash;
  hash.add(bytes);
  return hash.value();
}

std::uint64_t hash_file(const std::filesystem::path& path) {
  const ReadFile file(path);
  StreamHash hash;
  std::vector<std::byte> chunk(std::size_t{1} << 20);
  std::int64_t offset = 0;
  while (const std::size_t got = file.read(offset, chunk)) {
    hash.add(std::span(chunk).first(got));
    offset += static_cast<std::int64_t>(got);
  }
  return hash.value();
}

std::string hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

}  // namespace slimpipe::io
