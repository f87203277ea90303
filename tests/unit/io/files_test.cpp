#include "slimpipe/io/files.h"

#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include "slimpipe/core/check.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_bytes;

TEST_CASE("text written atomically reads back and leaves no other file", "[unit]") {
  const ScratchFolder folder;
  const std::string text("first\0second\n", 13);
  write_text_atomically(folder / "a", "old");
  write_text_atomically(folder / "a", text);
  CHECK(read_text(folder / "a") == text);
  CHECK(folder.files() == 1);
  write_text_atomically(folder / "a", "");
  CHECK(read_text(folder / "a").empty());
}

TEST_CASE("a text that cannot be written whole leaves the old one and no temporary file", "[unit]") {
  const ScratchFolder folder;
  write_text_atomically(folder / "a", "old");
  const std::string problem = [&] {
    const test::FileSizeLimit limit(1000);
    return message_of<Error>([&] { write_text_atomically(folder / "a", std::string(5000, 'x')); });
  }();
  CHECK_THAT(problem, contains((folder / "a").string()) && contains("File too large"));
  CHECK(read_text(folder / "a") == "old");
  CHECK(folder.files() == 1);
}

TEST_CASE("writing into a folder that is not there names file and reason", "[unit]") {
  const ScratchFolder folder;
  CHECK_THAT(message_of<Error>([&] { write_text_atomically(folder / "none/a", "x"); }),
             contains("none/a") && contains("No such file or directory"));
  CHECK_THAT(message_of<Error>([&] { write_text_atomically(folder.path(), "x"); }),
             contains(folder.path().string()) && contains("only a regular file is replaced"));
}

TEST_CASE("what is no readable regular file of bearable size is refused with the reason", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "long", "12345");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(read_text(folder / "long", 5) == "12345");
  CHECK_THAT(message_of<InputError>([&] { (void)read_text(folder / "long", 4); }),
             contains("5 bytes, expected at most 4"));
  CHECK_THAT(message_of<InputError>([&] { (void)read_text(folder / "none"); }), contains("No such file"));
  CHECK_THAT(message_of<InputError>([&] { (void)read_text(folder.path()); }), contains("it is a folder"));
  CHECK_THAT(message_of<InputError>([&] { (void)read_text(folder / "pipe"); }), contains("pipe"));
  if (::geteuid() != 0) {  // root reads everything
    std::filesystem::permissions(folder / "long", std::filesystem::perms::none);
    CHECK_THAT(message_of<InputError>([&] { (void)read_text(folder / "long"); }),
               contains("Permission denied"));
  }
}

TEST_CASE("a file's hash is the xxh3-64 of its content", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "empty", "");
  CHECK(hash_text(hash_file(folder / "empty")) == "2d06800538d394c2");  // published value of no input
  // Longer than one piece of the reading loop; one changed byte at its end must show.
  std::string bytes((std::size_t{1} << 20) + 17, 'a');
  write_bytes(folder / "a", bytes);
  const std::uint64_t first = hash_file(folder / "a");
  CHECK(first == hash_file(folder / "a"));
  bytes.back() = 'b';
  write_bytes(folder / "b", bytes);
  CHECK(hash_file(folder / "b") != first);
  CHECK(hash_text(0x1f) == "000000000000001f");
  CHECK_THROWS_AS(hash_file(folder / "none"), InputError);
}

TEST_CASE("syncing a folder that is not there is an error", "[unit]") {
  const ScratchFolder folder;
  sync_directory(folder.path());
  CHECK_THROWS_AS(sync_directory(folder / "none"), Error);
}

}  // namespace slimpipe::io
