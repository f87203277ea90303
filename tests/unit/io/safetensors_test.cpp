// Round trips and the exact bytes of safetensors files; what is refused is in safetensors_hostile_test.cpp.

#include "slimpipe/io/safetensors.h"

#include <cstring>
#include <numeric>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

using test::contains;
using test::message_of;
using test::read_bytes;
using test::ScratchFolder;

namespace {

std::vector<std::byte> counting_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

std::vector<TensorEntry> some_entries() {
  return {{.name = "z/w", .dtype = DType::kF32, .shape = {3, 5}},
          {.name = "none", .dtype = DType::kI32, .shape = {4, 0}},
          {.name = "a", .dtype = DType::kBF16, .shape = {7}},
          {.name = "scalar \"\xc3\xa9\"", .dtype = DType::kF64, .shape = {}}};
}

}  // namespace

TEST_CASE("tensors written in pieces of any size read back by name and range", "[unit]") {
  const ScratchFolder folder;
  const std::vector<std::byte> data = counting_bytes(60 + 0 + 14 + 8);
  const std::size_t piece = GENERATE(std::size_t{1}, std::size_t{13}, std::size_t{61}, std::size_t{82});
  SafetensorsWriter writer(folder / "w", some_entries(), {{"step", "7"}, {"a", ""}});
  for (std::size_t i = 0; i < data.size(); i += piece) {
    writer.append(std::span(data).subspan(i, std::min(piece, data.size() - i)));
  }
  const auto result = writer.finish();
  CHECK(result.bytes == static_cast<std::int64_t>(std::filesystem::file_size(folder / "w")));
  CHECK(result.hash == hash_file(folder / "w"));
  CHECK(folder.files() == 1);

  const SafetensorsReader reader(folder / "w");
  REQUIRE(reader.entries().size() == 4);
  std::vector<std::byte> back;
  for (const TensorEntry& expected : some_entries()) {
    const TensorEntry* entry = reader.find(expected.name);
    REQUIRE(entry != nullptr);
    CHECK(entry->dtype == expected.dtype);
    CHECK(entry->shape == expected.shape);
    std::vector<std::byte> whole(static_cast<std::size_t>(entry->bytes));
    reader.read(*entry, 0, whole);
    back.insert(back.end(), whole.begin(), whole.end());
  }
  CHECK(back == data);
  CHECK(reader.find("b") == nullptr);

  std::array<std::byte, 4> part{};
  reader.read(*reader.find("a"), 5, part);
  CHECK(std::memcmp(part.data(), data.data() + 65, part.size()) == 0);
  CHECK_THROWS_AS(reader.read(*reader.find("a"), 11, part), Error);
  CHECK_THROWS_AS(reader.read(*reader.find("a"), -1, part), Error);
}

TEST_CASE("a small file has exactly the bytes the format prescribes", "[unit]") {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "w",
                           {{.name = "b", .dtype = DType::kF32, .shape = {2}},
                            {.name = "a", .dtype = DType::kBF16, .shape = {1, 1}}},
                           {{"k", "vw"}});
  const std::array<std::uint8_t, 10> data = {0, 0, 128, 63, 0, 0, 0, 64, 128, 63};  // 1, 2 and a bf16 1
  writer.append(std::as_bytes(std::span(data)));
  writer.finish();

  std::string header = R"({"__metadata__":{"k":"vw"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"BF16","shape":[1,1],"data_offsets":[8,10]}})";
  REQUIRE(header.size() == 137);
  header.append(7, ' ');  // data starts at a multiple of 8
  const std::string expected = std::string("\x90\0\0\0\0\0\0\0", 8) + header +
                               std::string(reinterpret_cast<const char*>(data.data()), data.size());
  CHECK(read_bytes(folder / "w") == expected);
}

TEST_CASE("a file without tensors is allowed", "[unit]") {
  const ScratchFolder folder;
  SafetensorsWriter(folder / "w", {}, {}).finish();
  CHECK(SafetensorsReader(folder / "w").entries().empty());
}

TEST_CASE("a file that is not finished never appears", "[unit]") {
  const ScratchFolder folder;
  {
    SafetensorsWriter writer(folder / "w", some_entries(), {});
    writer.append(counting_bytes(70));
    CHECK_FALSE(std::filesystem::exists(folder / "w"));
    CHECK_THAT(message_of<Error>([&] { writer.finish(); }), contains("10 of 14 bytes of tensor a"));
    CHECK_THROWS_AS(writer.append(counting_bytes(13)), Error);  // one byte too many
  }
  CHECK(folder.files() == 0);
}

TEST_CASE("a write that fails names file, tensor and reason and leaves nothing", "[unit]") {
  const ScratchFolder folder;
  const std::string problem = [&] {
    const test::FileSizeLimit limit(2000);
    SafetensorsWriter writer(folder / "w",
                             {{.name = "small", .dtype = DType::kF32, .shape = {1}},
                              {.name = "large", .dtype = DType::kF32, .shape = {1000}}},
                             {});
    return message_of<Error>([&] { writer.append(counting_bytes(4004)); });
  }();
  CHECK_THAT(problem,
             contains((folder / "w").string()) && contains("tensor large") && contains("File too large"));
  CHECK(folder.files() == 0);
}

TEST_CASE("entries that cannot be written are refused before there is a file", "[unit]") {
  const ScratchFolder folder;
  const TensorEntry good{.name = "a", .dtype = DType::kF32, .shape = {1}};
  const auto write = [&](std::vector<TensorEntry> entries) {
    SafetensorsWriter(folder / "w", std::move(entries), {});
  };
  CHECK_THROWS_AS(write({good, good}), Error);
  CHECK_THROWS_AS(write({{.name = "__metadata__", .dtype = DType::kF32, .shape = {1}}}), Error);
  CHECK_THROWS_AS(write({{.name = "b", .dtype = DType::kF32, .shape = {-1}}}), Error);
  CHECK_THROWS_AS(write({{.name = "b", .dtype = DType::kF32, .shape = {1LL << 31, 1LL << 31}}}), Error);
  CHECK(folder.files() == 0);
}

}  // namespace slimpipe::io
