// Checkpoints that were damaged or made to do harm: always an InputError that names the place, never a crash,
// never a wrong number.

#include <limits>

#include "slimpipe/core/check.h"

#include "unit/train/checkpoint_fixtures.h"

namespace slimpipe::train {

using namespace slimpipe::test;
namespace fs = std::filesystem;

namespace {

/// `text` with the first `from` changed to `to`.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("no \"" + from + "\" in the manifest");
  return text.replace(at, from.size(), to);
}

std::string problem_with(const std::string& manifest) {
  return message_of<InputError>([&] { (void)parse_manifest(manifest, "some/manifest.json"); });
}

}  // namespace

TEST_CASE("a manifest's text gives the manifest back", "[unit]") {
  const ScratchFolder scratch;
  const std::string text = to_json(write_parts(scratch.path(), 3));
  CHECK(to_json(parse_manifest(text, "m")) == text);
}

TEST_CASE("a manifest from before stream, model and its own hash were recorded is read, without them",
          "[unit]") {
  const ScratchFolder scratch;
  Manifest manifest = write_parts(scratch.path(), 3);
  manifest.state.stream.reset();
  manifest.state.model.clear();
  const std::string with_hash = to_json(manifest);
  const std::string text = with_hash.substr(0, with_hash.rfind(",\n \"xxh3_64\"")) + "\n}\n";
  CHECK(text.find("stream") == std::string::npos);
  CHECK(text.find("model") == std::string::npos);
  CHECK(parse_manifest(text, "m").state == manifest.state);
}

TEST_CASE("a manifest cut short anywhere is refused", "[unit]") {
  const ScratchFolder scratch;
  const std::string text = to_json(write_parts(scratch.path(), 3));
  const std::size_t whole = text.find_last_of('}') + 1;
  for (std::size_t length = 0; length < whole; ++length) {
    CHECK_THROWS_AS(parse_manifest(text.substr(0, length), "m"), InputError);
  }
}

TEST_CASE("a manifest with any one byte changed is refused or harmless", "[unit]") {
  const ScratchFolder scratch;
  const fs::path saved = write_checkpoint(scratch.path(), 3);
  const std::string text = read_bytes(saved / "manifest.json");
  const TrainingState state = parse_manifest(text, "m").state;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char byte : {'\0', '9', '"', '{', '-', '\xff'}) {
      std::string changed = text;
      changed[i] = byte;
      write_bytes(saved / "manifest.json", changed);
      try {
        if (read_all(saved) != all_values()) FAIL_CHECK("wrong values with byte " << i << " changed");
        if (parse_manifest(changed, "m").state != state)
          FAIL_CHECK("wrong state with byte " << i << " changed");
      } catch (const InputError&) {
        continue;  // refused
      }
    }
  }
}

TEST_CASE("edited manifests are refused, each with what is wrong", "[unit]") {
  const ScratchFolder scratch;
  const std::string text = to_json(write_parts(scratch.path(), 3));
  const auto problem = [&](const std::string& from, const std::string& to) {
    return problem_with(replaced(text, from, to));
  };
  CHECK_THAT(problem("slimpipe-checkpoint", "other"), contains("some/manifest.json: expected format"));
  CHECK_THAT(problem("\"version\": 1", "\"version\": 2"),
             contains("expected version 1 of the format, found 2: use the slimpipe that wrote it"));
  CHECK_THAT(problem("\"cursor\": 12", "\"cursor\": 15"), contains("it was changed after it was written"));
  CHECK_THAT(problem("\"model.heads\": \"4\"", "\"model.heads\": 4"), contains("not a checkpoint manifest"));
  CHECK_THAT(problem("\"step\": 3", "\"step\": -3"), contains("state.step is -3"));
  CHECK_THAT(problem("\"step\": 3", "\"step\": 3.5"), contains("state.step is 3.5"));
  CHECK_THAT(problem("\"cursor\": 12", "\"cursor\": 18446744073709551615"), contains("state.cursor"));
  CHECK_THAT(problem("\"cursor\": 12", "\"cursor\": \"12\""), contains("state.cursor"));
  CHECK_THAT(problem("\"cursor\": 12,", ""), contains("cursor"));
  CHECK_THAT(problem("\"step\": 3", "\"step\": 4"), contains("which do not fit together"));
  CHECK_THAT(problem("\"xxh3_64\": \"", "\"xxh3_64\": \"0"), contains("16 hexadecimal digits"));
  CHECK_THAT(problem("\"seed\": 18446744073709551615", "\"seed\": -1"), contains("stream.seed is -1"));
  CHECK_THAT(problem("\"file_tokens\": 5000", "\"file_tokens\": 3999"), contains("is not one that can be"));
  CHECK_THAT(problem("\"end_token\": 4000", "\"end_token\": 101"), contains("is not one that can be"));
  CHECK_THAT(problem("\"sequence_length\": 32", "\"sequence_length\": 0"),
             contains("is not one that can be trained on"));
  CHECK_THAT(problem("\"shuffle_window\": 16,", ""), contains("shuffle_window"));
  CHECK_THAT(problem("00c0ffee12345678", "c0ffee12345678"),
             contains("stream.file_fingerprint is \"c0ffee12345678\", expected 16 hexadecimal digits"));
  CHECK_THAT(problem("\"dtype\": \"F32\"", "\"dtype\": \"BF16\""), contains("layer.bias has dtype"));
  for (const char* name :
       {"../a.safetensors", "/etc/passwd", "x/a.safetensors", "..", ".", "", "a/", "a.safetensors\\u0000b"}) {
    INFO(name);
    const std::string quoted = fmt::format("\"{}\"", name);
    CHECK_THAT(problem("\"a.safetensors\"", quoted), contains("is not a plain name"));
    CHECK_THAT(problem("\"file\": \"a.safetensors\"", "\"file\": " + quoted),
               contains("is not a plain name"));
  }
  CHECK_THAT(problem("\"b.safetensors\"", "\"a.safetensors\""), contains("a.safetensors is listed twice"));
  CHECK_THAT(problem("\"file\": \"a.safetensors\"", "\"file\": \"c.safetensors\""),
             contains("layer.weight lies in c.safetensors, which is not among the files"));
  CHECK_THAT(problem("\"begin\": 8", "\"begin\": 7"),
             contains("the pieces of tensor layer.weight overlap at element 7"));
  CHECK_THAT(problem("\"begin\": 8", "\"begin\": 9"),
             contains("the pieces of tensor layer.weight leave a gap at element 8"));
  CHECK_THAT(problem("\"begin\": 8", "\"begin\": 0"), contains("overlap at element 0"));
  CHECK_THAT(problem("\"count\": 8", "\"count\": 9"), contains("overlap at element 8"));
  CHECK_THAT(problem("\"count\": 4", "\"count\": 5"),
             contains("the pieces of tensor layer.weight have 13 elements, its shape 12"));
  CHECK_THAT(problem("\"count\": 4", "\"count\": -4"), contains("count of a piece of tensor layer.weight"));
  CHECK_THAT(problem("\"count\": 4", "\"count\": 9223372036854775807"), contains("count of a piece"));
  for (const char* json : {"[]", "null", "3", "{}", "[[[[[[", "{\"format\":[]}"}) {
    CHECK_THROWS_AS(parse_manifest(json, "m"), InputError);
  }
}

TEST_CASE("a tensor in more elements than can be counted is refused", "[unit]") {
  const ScratchFolder scratch;
  Manifest manifest = write_parts(scratch.path(), 3);
  manifest.tensors[kBias].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  CHECK_THAT(problem_with(to_json(manifest)), contains("tensor layer.bias has more than"));
}

TEST_CASE("a folder without a manifest that can be relied on is refused, naming the manifest", "[unit]") {
  const ScratchFolder scratch;
  const auto problem = [&] {
    return message_of<InputError>([&] { const CheckpointReader reader(scratch.path()); });
  };
  CHECK_THAT(problem(), contains("manifest.json") && contains("No such file"));
  write_bytes(scratch / "manifest.json", "{}");
  CHECK_THAT(problem(),
             contains((scratch / "manifest.json").string()) && contains("not a checkpoint manifest"));
}

TEST_CASE("another model's checkpoint is refused, naming the tensor", "[unit]") {
  const ScratchFolder scratch;
  CheckpointReader reader(write_checkpoint(scratch.path(), 3));
  std::vector<float> values(12);
  CHECK_THAT(message_of<InputError>([&] { reader.read("layer.other", weight_shape(), 0, values); }),
             contains("step-00000003: there is no tensor layer.other"));
  CHECK_THAT(message_of<InputError>([&] {
               reader.read(kWeight, {4, 3}, 0, values);
             }),
             contains("tensor layer.weight has the shape [3, 4], this run's model needs [4, 3]"));
}

TEST_CASE("a number that is not finite is refused, naming tensor and element", "[unit]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const ScratchFolder scratch;
    Manifest manifest = write_parts(scratch.path(), 3);
    const fs::path partial = scratch / "step-00000003.partial";
    manifest.files[0] = write_part(
        partial, "a.safetensors",
        {io::TensorEntry{.name = kWeight, .dtype = DType::kF32, .shape = {2, 4}, .offset = 0, .bytes = 0}},
        {0, 1, 2, 3, 4, value, 6, 7});
    CheckpointReader reader(commit_checkpoint(scratch.path(), manifest, 0));
    std::vector<float> part(4);
    REQUIRE_NOTHROW(reader.read(kWeight, weight_shape(), 0, part));
    CHECK_THAT(message_of<InputError>([&] { reader.read(kWeight, weight_shape(), 4, part); }),
               contains(fmt::format("step-00000003: element 5 of tensor layer.weight is {}", value)));
  }
}

TEST_CASE("a file with any one byte changed is refused, naming file and tensor", "[unit]") {
  const ScratchFolder scratch;
  const fs::path saved = write_checkpoint(scratch.path(), 3);
  const std::string bytes = read_bytes(saved / "a.safetensors");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    write_bytes(saved / "a.safetensors", changed);
    const std::string message = message_of<InputError>([&] { read_all(saved); });
    REQUIRE_THAT(message, contains("step-00000003/a.safetensors: the file is damaged"));
    REQUIRE_THAT(message, contains("needed for tensor layer.weight"));
  }
}

TEST_CASE("a file that is cut short, empty or gone is refused, naming file and tensor", "[unit]") {
  const ScratchFolder scratch;
  const fs::path saved = write_checkpoint(scratch.path(), 3);
  const auto bytes = static_cast<std::ptrdiff_t>(fs::file_size(saved / "b.safetensors"));
  for (const std::ptrdiff_t size : {bytes - 1, bytes / 2, std::ptrdiff_t{7}, std::ptrdiff_t{0}}) {
    fs::resize_file(saved / "b.safetensors", static_cast<std::uintmax_t>(size));
    const std::string message = message_of<InputError>([&] { read_all(saved); });
    CHECK_THAT(message, contains("b.safetensors: the file is damaged (needed for tensor layer.weight)"));
  }
  fs::remove(saved / "b.safetensors");
  CHECK_THAT(message_of<InputError>([&] { read_all(saved); }),
             contains("b.safetensors: the file is missing (needed for tensor layer.weight)"));
}

TEST_CASE("a file that holds another tensor than the manifest says is refused", "[unit]") {
  const ScratchFolder scratch;
  Manifest manifest = write_parts(scratch.path(), 3);
  SECTION("it lacks the tensor") {
    manifest.tensors["layer.other"] = {{2}, {{"a.safetensors", 0, 2}}};
    CheckpointReader reader(commit_checkpoint(scratch.path(), manifest, 0));
    std::vector<float> values(2);
    CHECK_THAT(message_of<InputError>([&] { reader.read("layer.other", {2}, 0, values); }),
               contains("a.safetensors: tensor layer.other is not there as 2 fp32 numbers"));
  }
  SECTION("it holds fewer numbers of it") {
    manifest.tensors[kWeight].pieces = {{"a.safetensors", 0, 6}, {"b.safetensors", 6, 6}};
    const fs::path saved = commit_checkpoint(scratch.path(), manifest, 0);
    CHECK_THAT(message_of<InputError>([&] { read_all(saved); }),
               contains("a.safetensors: tensor layer.weight is not there as 6 fp32 numbers"));
  }
}

}  // namespace slimpipe::train
