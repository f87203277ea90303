// Files that are damaged or made to do harm: an InputError, or a file that can be read inside its bounds.

#include <sys/stat.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/random.h"
#include "slimpipe/data/token_file.h"

#include "support/catch.h"
#include "support/file_fixtures.h"
#include "unit/data/token_file_fixtures.h"

namespace slimpipe::data {

using test::contains;
using test::message_of;
using test::poke;
using test::ScratchFolder;
using test::write_bytes;

namespace {

constexpr std::size_t kHeaderBytes = 112;
constexpr std::size_t kTokens = 128;
constexpr std::size_t kDocuments = 192;

/// Five tokens of two bytes in documents that start at 0, 2 and 4.
std::string good_file(const ScratchFolder& folder, std::int64_t vocabulary = 257) {
  test::write_token_file(folder / "good", vocabulary, {{0, 256}, {1, 2}, {3}});
  return test::read_bytes(folder / "good");
}

void read_all(const std::filesystem::path& path) {
  const TokenFile file = TokenFile::open(path);
  for (std::int64_t i = 0; i < file.documents(); ++i) (void)file.document_start(i);
  file.verify();
}

}  // namespace

TEST_CASE("a token file cut off anywhere is refused", "[unit]") {
  const ScratchFolder folder;
  const std::string file = good_file(folder);
  REQUIRE(file.size() == kDocuments + 3 * sizeof(std::uint64_t));
  REQUIRE_NOTHROW(read_all(folder / "good"));
  for (std::size_t length = 0; length < file.size(); ++length) {
    INFO("cut to " << length);
    write_bytes(folder / "t", file.substr(0, length));
    CHECK_THROWS_AS(read_all(folder / "t"), InputError);
  }
}

TEST_CASE("a token file with damaged bytes is refused or read inside its bounds", "[unit]") {
  const ScratchFolder folder;
  const std::string file = good_file(folder, GENERATE(257, 70000));
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::string damaged = file;
    const std::uint64_t flips = 1 + seed % 3;
    for (std::uint64_t i = 0; i < flips; ++i) {
      const std::uint64_t word = random_u64(seed, {RandomStream::Use::kTest, 1}, i);
      damaged[word % kHeaderBytes] ^= static_cast<char>(1U << (word >> 61));
    }
    write_bytes(folder / "t", damaged);
    INFO("seed " << seed);
    try {
      read_all(folder / "t");
    } catch (const InputError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("what is wrong with a token file is said, and what to do", "[unit]") {
  struct Case {
    std::size_t offset;
    std::uint64_t value;
    int bytes;
    std::string expected;
  };
  const std::uint64_t huge = ~std::uint64_t{0};
  const std::vector<Case> cases = {
      {0, 'X', 1, "it does not start with SLMTOKv1"},
      {7, '2', 1, "it does not start with SLMTOKv1"},
      {8, 48, 4, "the header has 48 bytes, expected 112"},
      {12, 3, 4, "a token has 3 bytes, expected 2 or 4"},
      {12, 4, 4, "section 'tokens' has 10 bytes, expected 5 times 4"},
      {16, 0, 8, "holds no tokens"},
      {16, 6, 8, "section 'tokens' has 10 bytes, expected 6 times 2"},
      {16, (1ULL << 63) + 5, 8, "expected 9223372036854775813 times 2"},  // twice that wraps to 10
      {16, huge, 8, "expected 18446744073709551615 times 2"},
      {24, 0, 8, "0 documents with 5 tokens"},
      {24, 6, 8, "6 documents with 5 tokens"},
      {24, 2, 8, "section 'documents' has 24 bytes, expected 2 times 8"},
      {32, 0, 8, "the vocabulary is 0"},
      {32, huge, 8, "the vocabulary is 18446744073709551615"},
      {32, 65537, 8, "a vocabulary of 65537 does not fit in tokens of 2 bytes"},
      {32, 256, 8, "token 1 is outside its vocabulary of 256"},
      {40, 1, 4, "expected 80 for 1 sections"},
      {40, 0xffffffff, 4, "4294967295 sections, expected at most 64"},
      {44, 1, 4, "the reserved field is 1"},
      {48, 'T', 1, "it has no section 'tokens'"},
      {80, 0x1b, 1, "it has no section 'documents'"},
      {48 + 15, 'x', 1, "the name of section 'tokens' is not padded with zeros"},
      {112, 1, 1, "the padding before section 'tokens' is not zero"},
      {kDocuments - 1, 1, 1, "the padding before section 'documents' is not zero"},
      {64, 129, 8, "section 'tokens' starts at 129, not a multiple of 64"},
      {64, 0, 8, "section 'tokens' at 0 overlaps what ends at 112"},
      {64, 192, 8, "overlaps"},
      {64, huge - 63, 8, "section 'tokens' has 10 bytes at 18446744073709551552"},
      {72, huge, 8, "section 'tokens' has 18446744073709551615 bytes"},
      {72, 12, 8, "section 'tokens' has 12 bytes, expected 5 times 2"},
      {104, 16, 8, "section 'documents' has 16 bytes, expected 3 times 8"},
      {kTokens + 4, 257, 2, "token 2 is outside its vocabulary of 257"},
      {kDocuments, 1, 8, "the first document starts at token 1"},
      {kDocuments + 8, 0, 8, "document 1 starts at token 0, not after document 0 at 0"},
      {kDocuments + 16, 1, 8, "document 2 starts at token 1, not after document 1 at 2"},
      {kDocuments + 16, 5, 8, "document 2 starts at token 5 of 5"},
      {kDocuments + 16, huge, 8, "document 2 starts at token 18446744073709551615 of 5"},
  };
  const ScratchFolder folder;
  const std::string good = good_file(folder);
  for (const Case& c : cases) {
    INFO("byte " << c.offset << " = " << c.value);
    std::string bytes = good;
    std::memcpy(bytes.data() + c.offset, &c.value, static_cast<std::size_t>(c.bytes));
    write_bytes(folder / "t", bytes);
    CHECK_THAT(message_of<InputError>([&] { read_all(folder / "t"); }),
               contains((folder / "t").string()) && contains(c.expected) &&
                   contains("prepare it again with 'slimpipe data prepare'"));
  }
}

TEST_CASE("bytes that belong to no section are refused", "[unit]") {
  const ScratchFolder folder;
  const std::string good = good_file(folder);
  const auto problem_with = [&](const std::string& bytes) {
    write_bytes(folder / "t", bytes);
    return message_of<InputError>([&] { (void)TokenFile::open(folder / "t"); });
  };
  CHECK_THAT(problem_with(good + '\0'), contains("1 bytes follow its last section, which ends at 216"));
  std::string gap = good;
  gap.insert(kDocuments, 64, '\0');
  poke<std::uint64_t>(gap, 80 + 16, kDocuments + 64);
  CHECK_THAT(problem_with(gap), contains("118 bytes before section 'documents' belong to no section"));
}

TEST_CASE("sections may come in any order, and unknown ones are passed over", "[unit]") {
  const ScratchFolder folder;
  std::string bytes = good_file(folder);
  bytes.insert(kTokens, 64, '\0');  // the third entry of the table ends at 144
  poke<std::uint32_t>(bytes, 8, 144);
  poke<std::uint32_t>(bytes, 40, 3);
  const std::string tokens_entry = bytes.substr(48, 32);
  bytes.replace(48, 32, bytes.substr(80, 32));
  bytes.replace(80, 32, tokens_entry);
  poke<std::uint64_t>(bytes, 48 + 16, kDocuments + 64);
  poke<std::uint64_t>(bytes, 80 + 16, kTokens + 64);
  bytes.replace(112, 16, "sixteen letters!");
  poke<std::uint64_t>(bytes, 112 + 16, 320);
  poke<std::uint64_t>(bytes, 112 + 24, 3);
  bytes.resize(320, '\0');
  bytes += "abc";
  write_bytes(folder / "t", bytes);
  const TokenFile file = TokenFile::open(folder / "t");
  CHECK(test::all_tokens(file) == std::vector<std::int32_t>{0, 256, 1, 2, 3});
  CHECK(file.document_start(2) == 4);

  bytes.replace(112, 16, std::string("tokens").append(10, '\0'));
  write_bytes(folder / "t", bytes);
  CHECK_THAT(message_of<InputError>([&] { read_all(folder / "t"); }),
             contains("more than one section 'tokens'"));
}

TEST_CASE("a file that is cut while it is open is an error of the read that misses something", "[unit]") {
  const ScratchFolder folder;
  test::write_counting_file(folder / "t", 100000);
  const TokenFile file = TokenFile::open(folder / "t");
  std::vector<std::int32_t> tokens(1000);
  std::filesystem::resize_file(folder / "t", 200000);  // 49,968 tokens of four bytes
  REQUIRE_NOTHROW(file.read(0, tokens));
  const auto problem = contains("t: it has become shorter since it was opened");
  CHECK_THAT(message_of<InputError>([&] { file.read(49900, tokens); }), problem);
  CHECK_THAT(message_of<InputError>([&] { file.read(99000, tokens); }), problem);
  CHECK_THAT(message_of<InputError>([&] { (void)file.document_start(0); }), problem);
  std::filesystem::resize_file(folder / "t", 0);
  CHECK_THAT(message_of<InputError>([&] { file.read(0, tokens); }), problem);
}

TEST_CASE("what is no token file at all is refused without waiting", "[unit]") {
  const ScratchFolder folder;
  const auto problem_with = [&](const std::filesystem::path& path) {
    return message_of<InputError>([&] { read_all(path); });
  };
  CHECK_THAT(problem_with(folder / "none"), contains("No such file") && contains("slimpipe data prepare"));
  CHECK_THAT(problem_with(folder.path()), contains("it is a folder"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(problem_with(folder / "pipe"), contains("expected a regular file"));
  write_bytes(folder / "t", "");
  CHECK_THAT(problem_with(folder / "t"), contains("the file is empty"));
  write_bytes(folder / "t", "Call me Ishmael. Some years ago");
  CHECK_THAT(problem_with(folder / "t"), contains("this is not a token file"));
  if (::geteuid() != 0) {  // root reads everything
    (void)good_file(folder);
    std::filesystem::permissions(folder / "good", std::filesystem::perms::none);
    CHECK_THAT(problem_with(folder / "good"), contains("Permission denied"));
  }
}

}  // namespace slimpipe::data
