#include "slimpipe/data/prepare.h"

#include <cstring>

#include "slimpipe/core/check.h"
#include "slimpipe/data/token_file.h"

#include "data/line_reader.h"
#include "support/catch.h"
#include "support/file_fixtures.h"
#include "unit/data/token_file_fixtures.h"

namespace slimpipe::data {

using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_bytes;

namespace {

std::string decoded(const std::filesystem::path& path) {
  return decode_bytes(test::all_tokens(TokenFile::open(path)));
}

}  // namespace

TEST_CASE("the byte tokenizer gives every byte back", "[unit]") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  CHECK(encode_bytes(bytes).back() == 255);
  CHECK(decode_bytes(encode_bytes(bytes)) == bytes);
  CHECK(decode_bytes({'a', kEndOfDocument, 'b'}) == "a<|end|>b");
  CHECK_THAT(message_of<InputError>([] { (void)decode_bytes({257}); }), contains("token 257"));
  CHECK_THROWS_AS(decode_bytes({-1}), InputError);
}

TEST_CASE("each text file is a document, in the order given", "[unit]") {
  const ScratchFolder folder;
  const std::string large(200001, 'x');  // longer than a piece of the reading loop
  write_bytes(folder / "a.txt", std::string("one\0\xff\n", 6));
  write_bytes(folder / "empty.txt", "");
  write_bytes(folder / "b.md", large);
  const PrepareResult result =
      prepare({.inputs = {folder / "b.md", folder / "empty.txt", folder / "a.txt"}, .output = folder / "t"});
  CHECK(result.documents == 2);
  CHECK(result.tokens == 200002 + 7);
  CHECK(decoded(folder / "t") == large + "<|end|>" + std::string("one\0\xff\n", 6) + "<|end|>");
  const TokenFile file = TokenFile::open(folder / "t");
  CHECK(file.vocabulary() == kByteVocabulary);
  CHECK(file.document_start(1) == 200002);
}

TEST_CASE("each JSON line is a document", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "a.jsonl",
              "{\"text\":\"one\"}\r\n"
              "\n"
              " \t\r\n"
              "{\"id\":[1,{\"text\":\"inner\"}],\"text\":\"t\\u00e9\\n\",\"more\":{\"text\":5}}\n"
              "{\"text\":\"\"}\n"
              "{\"text\":\"last\"}");
  const PrepareResult result = prepare({.inputs = {folder / "a.jsonl"}, .output = folder / "t"});
  CHECK(result.documents == 3);
  CHECK(decoded(folder / "t") == "one<|end|>t\xc3\xa9\n<|end|>last<|end|>");
}

TEST_CASE("format and key can be chosen", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "{\"body\":\"x\",\"text\":1}\n");
  (void)prepare({.inputs = {folder / "a.txt"},
                 .output = folder / "t",
                 .format = TextFormat::kJsonLines,
                 .text_key = "body"});
  CHECK(decoded(folder / "t") == "x<|end|>");
  write_bytes(folder / "b.json", "{");
  (void)prepare({.inputs = {folder / "b.json"}, .output = folder / "t", .format = TextFormat::kText});
  CHECK(decoded(folder / "t") == "{<|end|>");
}

TEST_CASE("a JSON line that is not as expected is named with file and line", "[unit]") {
  struct Case {
    std::string line;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"{\"text\":\"a\"", "not valid JSON at byte"},
      {"{\"text\":\"\xff\"}", "not valid JSON at byte"},
      {"{\"text\":\"a\"} x", "not valid JSON at byte"},
      {"nonsense", "not valid JSON at byte"},
      {"{\"Text\":\"a\"}", "the object has no \"text\""},
      {"{\"a\":{\"text\":\"a\"}}", "the object has no \"text\""},
      {"{}", "the object has no \"text\""},
      {"{\"text\":1}", "\"text\" is a number, expected a string"},
      {"{\"text\":-1.5}", "\"text\" is a number, expected a string"},
      {"{\"text\":null}", "\"text\" is null, expected a string"},
      {"{\"text\":true}", "\"text\" is a boolean, expected a string"},
      {"{\"text\":[\"a\"]}", "\"text\" is an array, expected a string"},
      {"{\"text\":{\"text\":\"a\"}}", "\"text\" is an object, expected a string"},
      {"{\"text\":\"a\",\"id\":1,\"text\":\"b\"}", "\"text\" is there twice, expected one text"},
      {"[\"a\"]", "expected a JSON object, found an array"},
      {"\"a\"", "expected a JSON object, found a string"},
      {"5", "expected a JSON object, found a number"},
      {"{\"a\":" + std::string(1000000, '['), "not valid JSON at byte"},
  };
  const ScratchFolder folder;
  for (const Case& c : cases) {
    INFO(c.line.substr(0, 100));
    write_bytes(folder / "a.jsonl", "{\"text\":\"good\"}\n\n" + c.line + "\n{\"text\":\"good\"}\n");
    CHECK_THAT(message_of<InputError>(
                   [&] { (void)prepare({.inputs = {folder / "a.jsonl"}, .output = folder / "t"}); }),
               contains((folder / "a.jsonl:3: ").string() + c.expected));
    CHECK(folder.files() == 1);  // only the input
  }
}

TEST_CASE("lines are read whole up to their bound, across the pieces of the file", "[unit]") {
  const ScratchFolder folder;
  const std::string longest(150000, 'x');
  write_bytes(folder / "long", "a\n\n" + longest + "\nb\n" + longest + "y\nrest");
  const io::ReadFile file(folder / "long");
  LineReader lines(file, longest.size());
  std::string line;
  for (const std::string& expected : {std::string("a"), std::string(), longest, std::string("b")}) {
    REQUIRE(lines.next(line) == LineReader::Status::kLine);
    CHECK(line == expected);
  }
  CHECK(lines.next(line) == LineReader::Status::kTooLong);

  write_bytes(folder / "unfinished", "a\nb");
  const io::ReadFile unfinished(folder / "unfinished");
  LineReader two(unfinished, 1);
  CHECK(two.next(line) == LineReader::Status::kLine);
  CHECK(two.next(line) == LineReader::Status::kLine);
  CHECK(line == "b");
  CHECK(two.next(line) == LineReader::Status::kEnd);
}

TEST_CASE("inputs that are no text files are refused with what to do", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "text");
  write_bytes(folder / "empty.txt", "");
  const auto problem_with = [&](std::vector<std::filesystem::path> inputs) {
    return message_of<InputError>(
        [&] { (void)prepare({.inputs = std::move(inputs), .output = folder / "t"}); });
  };
  CHECK_THAT(problem_with({}), contains("no input files"));
  CHECK_THAT(problem_with({folder / "a.txt", folder.path()}),
             contains("it is a folder, expected a regular file"));
  CHECK_THAT(problem_with({folder / "none.txt"}), contains("none.txt") && contains("No such file"));
  CHECK_THAT(problem_with({folder / "empty.txt"}), contains("there is no text in"));
  CHECK_FALSE(std::filesystem::exists(folder / "t"));
  CHECK(folder.files() == 2);
  CHECK_THAT(message_of<InputError>([&] {
               (void)prepare({.inputs = {folder / "a.txt"}, .output = folder.path() / "." / "a.txt"});
             }),
             contains("is one of the inputs"));
  CHECK(test::read_bytes(folder / "a.txt") == "text");
}

TEST_CASE("inspecting a file shows counts, lengths and the first tokens, harmless to a terminal", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "one\n\x1b[31m\t");
  write_bytes(folder / "b.txt", std::string(100, 'y'));
  (void)prepare({.inputs = {folder / "a.txt", folder / "b.txt"}, .output = folder / "t"});
  const std::string text = inspect(folder / "t", 5);
  CHECK(text == (folder / "t").string() +
                    "\n"
                    "  tokens      112\n"
                    "  documents   2 (shortest 11, mean 56.0, longest 101 tokens)\n"
                    "  vocabulary  257 (bytes and the end of a document)\n"
                    "  document 0 (11 tokens): one\\n\\x1b[31m\\t<|end|>\n"
                    "  document 1 (101 tokens): " +
                    std::string(64, 'y') + " ...\n");
  CHECK_THAT(inspect(folder / "t", 1), !contains("document 1 ("));

  test::write_token_file(folder / "ids", 1000, {{999, 5}});
  CHECK_THAT(inspect(folder / "ids", 1), contains("document 0 (2 tokens): 999 5\n"));
  CHECK_THROWS_AS(inspect(folder / "a.txt", 1), InputError);
}

}  // namespace slimpipe::data
