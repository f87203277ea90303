#include "slimpipe/io/read_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

namespace slimpipe::io {

ReadFile::ReadFile(const std::filesystem::path& path) : path_(path) {
  // Not blocking: a named pipe must be refused below, not wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw_input_error("cannot open {}: {}", path.string(), system_reason(errno));
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    bytes_ = status.st_size;
    return;
  }
  ::close(descriptor_);
  if (error != 0) throw_input_error("cannot open {}: {}", path.string(), system_reason(error));
  throw_input_error("cannot open {}: it is {}, expected a regular file", path.string(),
                    S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
}

ReadFile::~ReadFile() {
  ::close(descriptor_);
}

std::size_t ReadFile::read(std::int64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(descriptor_, out.data() + done, out.size() - done, offset + static_cast<std::int64_t>(done));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_error("reading {} failed: {}", path_.string(), system_reason(errno));
    }
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace slimpipe::io
