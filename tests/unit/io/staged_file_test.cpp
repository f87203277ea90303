#include "slimpipe/io/staged_file.h"

#include <csignal>
#include <fcntl.h>
#include <span>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_bytes;

namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void write_staged(const fs::path& path, std::string_view text) {
  StagedFile file(path);
  file.write(bytes(text));
  file.commit();
}

bool has_unnamed_files(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (descriptor < 0) return false;
  ::close(descriptor);
  return true;
}

/// A process that has begun to write `path` and goes on holding it until it is ended.
class OtherWriter {
 public:
  explicit OtherWriter(const fs::path& path, TemporaryName when = TemporaryName::kFromTheStart) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      StagedFile file(path, when);
      file.write(bytes("half of"));
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    const bool began = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    ::close(ready[1]);
    REQUIRE(began);
    temporary_ = fmt::format("{}.{}.tmp", path.string(), process_);
  }
  ~OtherWriter() { kill(); }
  OtherWriter(const OtherWriter&) = delete;
  OtherWriter& operator=(const OtherWriter&) = delete;

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  [[nodiscard]] const fs::path& temporary() const { return temporary_; }

 private:
  pid_t process_ = -1;
  fs::path temporary_;
};

}  // namespace

TEST_CASE("bytes of a staged file can be replaced until it is committed, and none beyond its end", "[unit]") {
  const ScratchFolder folder;
  StagedFile file(folder / "a");
  file.write(bytes("....body"));
  file.write_at(1, bytes("abc"));
  file.write_at(8, {});
  file.write(bytes(", end"));  // appending goes on behind the end, not behind what was replaced
  CHECK_THROWS_AS(file.write_at(12, bytes("xy")), Error);
  CHECK_THROWS_AS(file.write_at(-1, bytes("x")), Error);
  CHECK(file.bytes() == 13);
  CHECK_FALSE(std::filesystem::exists(folder / "a"));
  file.commit();
  CHECK(read_text(folder / "a") == ".abcbody, end");
  CHECK(folder.files() == 1);
}

TEST_CASE("a staged file replaces the old one when it is committed, and leaves nothing when it is not",
          "[unit]") {
  const auto when = GENERATE(TemporaryName::kWhenWhole, TemporaryName::kFromTheStart);
  const ScratchFolder folder;
  write_bytes(folder / "a", "old");
  const auto write = [&](bool commit) {
    StagedFile file(folder / "a", when);
    file.write(bytes("new"));
    CHECK(read_text(folder / "a") == "old");
    if (commit) file.commit();
  };
  write(false);
  CHECK(read_text(folder / "a") == "old");
  CHECK(folder.files() == 1);
  write(true);
  CHECK(read_text(folder / "a") == "new");
  CHECK(folder.files() == 1);
}

TEST_CASE("a killed process leaves nothing where the file system has unnamed files", "[unit]") {
  const ScratchFolder folder;
  if (!has_unnamed_files(folder.path())) {
    WARN("there are none in " << folder.path());
    return;
  }
  OtherWriter other(folder / "a", TemporaryName::kWhenWhole);
  CHECK(folder.files() == 0);
  other.kill();
  CHECK(folder.files() == 0);
}

TEST_CASE("a temporary name that another holds is not taken away", "[unit]") {
  const ScratchFolder folder;
  StagedFile file(folder / "a");
  file.write(bytes("text"));
  if (folder.files() > 0) return;  // it has its name already
  // Not abandoned: no regular file is.
  fs::create_directory(folder / fmt::format("a.{}.tmp", ::getpid()));
  CHECK_THAT(message_of<Error>([&] { file.commit(); }), contains("File exists"));
  CHECK_FALSE(fs::exists(folder / "a"));
  fs::remove(folder / fmt::format("a.{}.tmp", ::getpid()));
  write_bytes(folder / fmt::format("a.{}.tmp", ::getpid()), "abandoned");
  file.commit();
  CHECK(read_text(folder / "a") == "text");
  CHECK(folder.files() == 1);
}

TEST_CASE("what a killed process left is removed by the next writer of the same file, and no earlier",
          "[unit]") {
  const ScratchFolder folder;
  OtherWriter other(folder / "a");
  write_staged(folder / "a", "whole");
  CHECK(read_text(other.temporary()) == "half of");  // its writer lives
  other.kill();
  write_staged(folder / "b", "another file");
  CHECK(fs::exists(other.temporary()));
  write_staged(folder / "a", "new");
  CHECK_FALSE(fs::exists(other.temporary()));
  CHECK(read_text(folder / "a") == "new");
  CHECK(folder.files() == 2);
}

TEST_CASE("a left-over of a process with this one's number is no hindrance", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / fmt::format("a.{}.tmp", ::getpid()), "a longer text than the new one");
  write_staged(folder / "a", "new");
  CHECK(read_text(folder / "a") == "new");
  CHECK(folder.files() == 1);
}

TEST_CASE("files that only look like left-overs stay", "[unit]") {
  const ScratchFolder folder;
  const std::vector<std::string> names = {"a.x1.tmp", "a..tmp",      "a.tmp", "a1.tmp",
                                          "ab.1.tmp", "a.1.tmp.old", "a.1"};
  for (const std::string& name : names) write_bytes(folder / name, "kept");
  fs::create_directory(folder / "a.7.tmp");
  write_bytes(folder / "elsewhere", "kept");
  fs::create_symlink(folder / "elsewhere", folder / "a.8.tmp");
  write_staged(folder / "a", "new");
  for (const std::string& name : names) CHECK(read_text(folder / name) == "kept");
  CHECK(fs::is_directory(folder / "a.7.tmp"));
  CHECK(fs::is_symlink(folder / "a.8.tmp"));
  CHECK(read_text(folder / "elsewhere") == "kept");
}

TEST_CASE("what is no regular file is not replaced", "[unit]") {
  const ScratchFolder folder;
  const fs::path path = folder / "out";
  std::string what;
  SECTION("a folder") {
    fs::create_directory(path);
    what = "a folder";
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    what = "a device, pipe or socket";
  }
  SECTION("a link to a file") {
    write_bytes(folder / "target", "kept");
    fs::create_symlink(folder / "target", path);
    what = "a symbolic link";
  }
  SECTION("a link to nothing") {
    fs::create_symlink(folder / "nowhere", path);
    what = "a symbolic link";
  }
  const auto files = folder.files();
  const fs::file_type type = fs::symlink_status(path).type();
  CHECK(message_of<Error>([&] { const StagedFile file(path); }) ==
        fmt::format("cannot write {}: it is {}, and only a regular file is replaced", path.string(), what));
  CHECK(fs::symlink_status(path).type() == type);
  CHECK(folder.files() == files);
}

TEST_CASE("what came to stand at the name in the meantime is not replaced either", "[unit]") {
  const ScratchFolder folder;
  {
    StagedFile file(folder / "out");
    file.write(bytes("text"));
    REQUIRE(::mkfifo((folder / "out").c_str(), 0600) == 0);
    CHECK_THAT(message_of<Error>([&] { file.commit(); }), contains("only a regular file is replaced"));
  }
  CHECK(fs::is_fifo(folder / "out"));
  CHECK(folder.files() == 1);
}

TEST_CASE("a device is refused and a path without a name is none", "[unit]") {
  CHECK_THAT(message_of<Error>([] { const StagedFile file("/dev/null"); }),
             contains("/dev/null: it is a device, pipe or socket"));
  CHECK(fs::is_character_file("/dev/null"));
  const ScratchFolder folder;
  CHECK_THAT(message_of<Error>([&] { const StagedFile file(folder / "none/"); }),
             contains("it names no file"));
  CHECK_THAT(message_of<Error>([] { const StagedFile file(""); }), contains("it names no file"));
}

}  // namespace slimpipe::io
