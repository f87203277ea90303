// Files that are damaged or made to do harm: an InputError, or a file whose every tensor can be read.

#include "slimpipe/core/check.h"
#include "slimpipe/core/random.h"
#include "slimpipe/io/safetensors.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_bytes;

namespace {

std::string with_header(const std::string& header, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, 'd');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype, shape,
                     offsets);
}

std::string object(const std::string& members) {
  return fmt::format("{{{}}}", members);
}

std::string good_file() {
  return with_header("{\"__metadata__\":{\"step\":\"1\"}," + tensor("a", "F32", "2,3", "0,24") + "," +
                         tensor("b", "I32", "1", "24,28") + "} ",
                     28);
}

/// Opens and reads every byte of every tensor.
void read_all(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  for (const TensorEntry& entry : reader.entries()) {
    std::vector<std::byte> data(static_cast<std::size_t>(entry.bytes));
    reader.read(entry, 0, data);
  }
}

}  // namespace

TEST_CASE("a safetensors file cut off anywhere is refused", "[unit]") {
  const ScratchFolder folder;
  const std::string file = good_file();
  write_bytes(folder / "w", file);
  REQUIRE_NOTHROW(read_all(folder / "w"));
  for (std::size_t length = 0; length < file.size(); ++length) {
    INFO("cut to " << length);
    write_bytes(folder / "w", file.substr(0, length));
    CHECK_THROWS_AS(read_all(folder / "w"), InputError);
  }
  write_bytes(folder / "w", file + "x");
  CHECK_THROWS_AS(read_all(folder / "w"), InputError);
}

TEST_CASE("a safetensors file with damaged bytes is refused or read inside its bounds", "[unit]") {
  const ScratchFolder folder;
  const std::string file = good_file();
  const std::size_t header_end = file.size() - 28;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::string damaged = file;
    const std::uint64_t flips = 1 + seed % 3;
    for (std::uint64_t i = 0; i < flips; ++i) {
      const std::uint64_t word = random_u64(seed, {RandomStream::Use::kTest, 0}, i);
      damaged[word % header_end] ^= static_cast<char>(1U << (word >> 61));
    }
    write_bytes(folder / "w", damaged);
    INFO("seed " << seed);
    try {
      read_all(folder / "w");
    } catch (const InputError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("what is wrong with a safetensors file is said", "[unit]") {
  struct Case {
    std::string header;
    std::size_t data_bytes;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"[]", 0, "brace"},
      {"", 0, "brace"},
      {"{\"a\":", 0, "not valid JSON"},
      {"{\"a\":\"\xff\"}", 0, "not valid JSON"},
      {"{} {}", 0, "not valid JSON"},
      {"{\"a\":1}", 0, "tensor \"a\" is no object"},
      {object(tensor("a", "F16", "2", "0,4")), 4, "has dtype \"F16\", expected F32, BF16, F64 or I32"},
      {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype"},
      {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no list 'shape'"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "no list 'data_offsets'"},
      {object(tensor("a", "F32", "-1", "0,4")), 4, "holds -1"},
      {object(tensor("a", "F32", "1.0", "0,4")), 4, "holds 1.0"},
      {object(tensor("a", "F32", "18446744073709551615", "0,4")), 4, "holds 18446744073709551615"},
      {object(tensor("a", "F32", "4294967296,4294967296", "0,0")), 0, "more elements than an int64"},
      {object(tensor("a", "F32", "1", "0")), 4, "has 1 data offsets"},
      {object(tensor("a", "F32", "1", "4,0")), 4, "bytes [4, 0) of 4"},
      {object(tensor("a", "F32", "2", "0,8")), 4, "bytes [0, 8) of 4"},
      {object(tensor("a", "F32", "2", "0,4")), 4, "4 bytes of data, expected 8"},
      {object(tensor("a", "F32", "1", "0,4") + "," + tensor("b", "F32", "1", "0,4")), 4,
       "starts at byte 0, expected 4"},
      {object(tensor("a", "F32", "1", "0,4") + "," + tensor("b", "F32", "1", "8,12")), 12,
       "starts at byte 8, expected 4"},
      {object(tensor("a", "F32", "1", "4,8")), 8, "starts at byte 4, expected 0"},
      {object(tensor("a", "F32", "1", "0,4")), 8, "8 bytes of data, its tensors 4"},
      {object(tensor("a", "F32", "1", "0,4") + "," + tensor("a", "F32", "1", "4,8")), 8,
       "\"a\" is there twice"},
      {"{\"__metadata__\":[]}", 0, "__metadata__ is no object"},
      {"{\"__metadata__\":{\"k\":1}}", 0, "\"k\" is no text"},
      {"{\"a\":{\"shape\":" + std::string(100000, '['), 0, "nested more than 3 deep"},
      {"{\"\\u001b[31m\":1}", 0, "tensor \"\\u001b[31m\""},
  };
  const ScratchFolder folder;
  for (const Case& c : cases) {
    INFO(c.header.substr(0, 200));
    write_bytes(folder / "w", with_header(c.header, c.data_bytes));
    CHECK_THAT(message_of<InputError>([&] { read_all(folder / "w"); }),
               contains((folder / "w").string()) && contains(c.expected));
  }
}

TEST_CASE("absurd header lengths and what is no file are refused", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "w", std::string(8, '\xff') + "{}");
  CHECK_THAT(message_of<InputError>([&] { read_all(folder / "w"); }), contains("18446744073709551615"));
  CHECK_THROWS_AS(read_all(folder.path()), InputError);
  CHECK_THROWS_AS(read_all(folder / "none"), InputError);
}

TEST_CASE("a tensor of a file that became shorter is an error, not old memory", "[unit]") {
  const ScratchFolder folder;
  write_bytes(folder / "w", good_file());
  const SafetensorsReader reader(folder / "w");
  std::filesystem::resize_file(folder / "w", 30);
  std::array<std::byte, 24> data{};
  CHECK_THAT(message_of<InputError>([&] { reader.read(*reader.find("a"), 0, data); }), contains("shorter"));
}

}  // namespace slimpipe::io
