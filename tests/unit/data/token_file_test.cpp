#include "slimpipe/data/token_file.h"

#include "slimpipe/core/check.h"

#include "support/catch.h"
#include "support/file_fixtures.h"
#include "unit/data/token_file_fixtures.h"

namespace slimpipe::data {

using test::all_tokens;
using test::contains;
using test::message_of;
using test::read_bytes;
using test::ScratchFolder;

TEST_CASE("documents written in pieces read back as they were", "[unit]") {
  const ScratchFolder folder;
  const std::int64_t vocabulary = GENERATE(as<std::int64_t>{}, 257, 65536, 65537, std::int64_t{1} << 31);
  const auto largest = static_cast<std::int32_t>(vocabulary - 1);
  {
    TokenFileWriter writer(folder / "t", vocabulary);
    writer.append(std::vector<std::int32_t>{largest, 0});
    writer.append({});
    writer.append(std::vector<std::int32_t>{5});
    writer.end_document();
    writer.end_document();  // no empty document between
    writer.append(std::vector<std::int32_t>(9001, 7));
    CHECK(writer.tokens() == 9004);
    CHECK(writer.documents() == 2);
    writer.finish();
  }
  TokenFile file = TokenFile::open(folder / "t");
  CHECK(file.vocabulary() == vocabulary);
  CHECK(file.tokens() == 9004);
  CHECK(file.documents() == 2);
  CHECK(file.document_start(0) == 0);
  CHECK(file.document_start(1) == 3);
  CHECK(file.path() == folder / "t");
  std::vector<std::int32_t> expected(9004, 7);
  expected[0] = largest;
  expected[1] = 0;
  expected[2] = 5;
  CHECK(all_tokens(file) == expected);
  file.verify();

  const TokenFile moved = std::move(file);
  std::vector<std::int32_t> part(2);
  moved.read(2, part);
  CHECK(part == std::vector<std::int32_t>{5, 7});
  moved.read(9004, {});
  CHECK_THROWS_AS(moved.read(9003, part), Error);
  CHECK_THROWS_AS(moved.read(-1, part), Error);
  CHECK_THROWS_AS(moved.document_start(2), Error);
  CHECK_THROWS_AS(moved.document_start(-1), Error);
}

TEST_CASE("a small token file has exactly the bytes of its layout", "[unit]") {
  const ScratchFolder folder;
  test::write_token_file(folder / "t", 300, {{258, 1}, {2}});
  std::string expected(264, '\0');  // 112 of header, tokens at 128, documents at 192
  expected.replace(0, 8, "SLMTOKv1");
  test::poke<std::uint32_t>(expected, 8, 112);
  test::poke<std::uint32_t>(expected, 12, 2);
  test::poke<std::uint64_t>(expected, 16, 3);
  test::poke<std::uint64_t>(expected, 24, 2);
  test::poke<std::uint64_t>(expected, 32, 300);
  test::poke<std::uint32_t>(expected, 40, 2);
  expected.replace(48, 6, "tokens");
  test::poke<std::uint64_t>(expected, 64, 128);
  test::poke<std::uint64_t>(expected, 72, 6);
  expected.replace(80, 9, "documents");
  test::poke<std::uint64_t>(expected, 96, 192);
  test::poke<std::uint64_t>(expected, 104, 16);
  expected.replace(128, 6, std::string("\x02\x01\x01\x00\x02\x00", 6));
  test::poke<std::uint64_t>(expected, 200, 2);
  expected.resize(208);
  CHECK(read_bytes(folder / "t") == expected);
}

TEST_CASE("a token file that is not finished never appears", "[unit]") {
  const ScratchFolder folder;
  test::write_token_file(folder / "t", 10, {{1}});
  const std::string old = read_bytes(folder / "t");
  {
    TokenFileWriter writer(folder / "t", 10);
    writer.append(std::vector<std::int32_t>{2});
    CHECK(read_bytes(folder / "t") == old);
  }
  CHECK(folder.files() == 1);
  CHECK(read_bytes(folder / "t") == old);
}

TEST_CASE("a file without tokens is not written", "[unit]") {
  const ScratchFolder folder;
  CHECK_THAT(message_of<InputError>([&] {
               TokenFileWriter writer(folder / "t", 10);
               writer.end_document();
               writer.finish();
             }),
             contains("no text"));
  CHECK(folder.files() == 0);
}

TEST_CASE("a token outside the vocabulary is refused when it is written, with its place", "[unit]") {
  const ScratchFolder folder;
  TokenFileWriter writer(folder / "t", 10);
  writer.append(std::vector<std::int32_t>{1, 9});
  CHECK_THAT(message_of<InputError>([&] {
               writer.append(std::vector<std::int32_t>{3, 10});
             }),
             contains("token 3 is 10, outside the vocabulary of 10"));
  CHECK_THROWS_AS(writer.append(std::vector<std::int32_t>{-1}), InputError);
}

TEST_CASE("a full disk is reported with the reason and leaves nothing", "[unit]") {
  const ScratchFolder folder;
  const std::int64_t tokens = GENERATE(100000, 4000);  // fails in append, fails in finish
  const std::string problem = [&] {
    const test::FileSizeLimit limit(4096);
    return message_of<Error>([&] { test::write_counting_file(folder / "t", tokens, 257); });
  }();
  CHECK_THAT(problem, contains((folder / "t").string()) && contains("File too large"));
  CHECK(folder.files() == 0);
}

TEST_CASE("a fingerprint tells texts apart, and short and long files from their ends", "[unit]") {
  const ScratchFolder folder;
  const std::int64_t tokens = GENERATE(as<std::int64_t>{}, 1, 1000, 262144, 300001);
  std::vector<std::int32_t> text(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * 31 % 251);
  const auto fingerprint_of = [&](const std::vector<std::int32_t>& ids) {
    test::write_token_file(folder / "t", 257, {ids});
    return TokenFile::open(folder / "t").fingerprint();
  };
  const std::uint64_t fingerprint = fingerprint_of(text);
  CHECK(fingerprint_of(text) == fingerprint);
  for (const std::size_t changed : {std::size_t{0}, text.size() - 1}) {
    std::vector<std::int32_t> other = text;
    other[changed] = 256;
    CHECK(fingerprint_of(other) != fingerprint);
  }
  std::vector<std::int32_t> shifted = text;
  shifted.insert(shifted.begin() + tokens / 2, 9);
  CHECK(fingerprint_of(shifted) != fingerprint);
}

TEST_CASE("a token file where none can be made is refused", "[unit]") {
  const ScratchFolder folder;
  CHECK_THAT(message_of<InputError>([&] { const TokenFileWriter writer(folder / "none/t", 10); }),
             contains("none/t") && contains("No such file or directory"));
  CHECK_THAT(message_of<InputError>([&] { const TokenFileWriter writer(folder.path(), 10); }),
             contains("is a folder"));
}

}  // namespace slimpipe::data
