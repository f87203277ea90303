#include "slimpipe/io/run_folder.h"

#include <cerrno>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"
#include "slimpipe/io/json_lines.h"

namespace slimpipe::io {
namespace {

constexpr const char* kLockName = ".lock";

void make_folder(const std::filesystem::path& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (!failure && !std::filesystem::is_directory(path, failure) && !failure)
    failure = std::make_error_code(std::errc::not_a_directory);
  if (failure) {
    throw_input_error("cannot make the run folder {}: {}; choose another with --run-dir", path.string(),
                      failure.message());
  }
}

/// An advisory lock that the system gives up with the process, however it ends.
std::shared_ptr<const int> lock_folder(const std::filesystem::path& path) {
  const std::filesystem::path file = path / kLockName;
  constexpr int kMode = 0666;
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (descriptor < 0) {
    throw_input_error("cannot write in the run folder {}: {}; choose another with --run-dir", path.string(),
                      system_reason(errno));
  }
  std::shared_ptr<const int> lock(new int(descriptor), [](const int* held) {
    ::close(*held);
    delete held;
  });
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw_input_error("the run folder {} is in use by another run; wait for it, or choose another --run-dir",
                      path.string());
  }
  return lock;  // a file system without locks gives none
}

/// A text that no other run has.
void leave_mark(int descriptor, const std::filesystem::path& folder) {
  std::random_device random;
  const std::string text = fmt::format("{}-{:08x}{:08x}\n", ::getpid(), random(), random());
  if (::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, text.data(), text.size(), 0) != std::ssize(text)) {
    throw_input_error("cannot write in the run folder {}: {}; choose another with --run-dir", folder.string(),
                      system_reason(errno));
  }
}

/// Whether there is a file with anything in it, or a folder with any entry. A run that failed before its
/// first step leaves an empty metrics.jsonl: nothing that could be lost.
bool holds_something(const std::filesystem::path& path) {
  std::error_code failure;
  const bool empty = std::filesystem::is_empty(path, failure);
  return failure ? std::filesystem::exists(path, failure) : !empty;
}

}  // namespace

RunFolder RunFolder::create(const std::filesystem::path& path, bool resume) {
  RunFolder folder(path);
  make_folder(path);
  folder.lock_ = lock_folder(path);
  // A new run's checkpoints would be deleted before those of an earlier one that came further.
  for (const std::filesystem::path& trace_of_a_run : {folder.metrics(), folder.checkpoints()}) {
    if (resume || !holds_something(trace_of_a_run)) continue;
    throw_input_error(
        "the run folder {} holds a run already ({}); pass --resume to go on with it, or another --run-dir",
        path.string(), trace_of_a_run.filename().string());
  }
  leave_mark(*folder.lock_, path);
  std::error_code failure;
  const auto metrics = std::filesystem::status(folder.metrics(), failure);
  if (std::filesystem::exists(metrics) && !std::filesystem::is_regular_file(metrics)) {
    throw_input_error("{} is no regular file; remove it, or choose another --run-dir",
                      folder.metrics().string());
  }
  make_folder(path / "logs");
  make_folder(folder.checkpoints());
  std::filesystem::remove(folder.failure(), failure);
  if (failure) throw_error("cannot remove {}: {}", folder.failure().string(), failure.message());
  return folder;
}

std::string RunFolder::mark() const {
  std::error_code failure;
  const std::filesystem::path file = path_ / kLockName;
  return std::filesystem::is_regular_file(file, failure) ? read_text(file) : "";
}

bool RunFolder::is_still_there() const {
  return lock_ == nullptr || is_at(path_ / kLockName, *lock_);
}

std::filesystem::path RunFolder::log(int rank) const {
  return path_ / "logs" / fmt::format("rank-{}.log", rank);
}

std::filesystem::path RunFolder::trace(int rank) const {
  return path_ / fmt::format("trace-{}.json", rank);
}

bool RunFolder::claim_failure(std::string_view text) const noexcept try {
  if (!is_still_there()) return true;  // another run's, now
  constexpr int kMode = 0666;          // the process's umask takes away what it must
  const int descriptor = ::open(failure().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (descriptor < 0) return errno != EEXIST;
  const std::string line = to_json({{"cause", std::string(text)}}) + "\n";
  const ssize_t written = ::write(descriptor, line.data(), line.size());
  ::close(descriptor);
  if (written != std::ssize(line)) ::unlink(failure().c_str());  // a full disk: whole or not at all
  return true;
} catch (...) {
  return true;
}

}  // namespace slimpipe::io
