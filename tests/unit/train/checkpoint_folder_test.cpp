// Folders of checkpoints: which one is chosen, which ones go, what a failed write leaves.

#include "slimpipe/core/check.h"

#include "unit/train/checkpoint_fixtures.h"

namespace slimpipe::train {

using namespace slimpipe::test;
namespace fs = std::filesystem;

namespace {

std::string newest_name(const fs::path& folder) {
  const auto newest = newest_checkpoint(folder);
  return newest ? newest->filename().string() : "none";
}

}  // namespace

TEST_CASE("what was written is read back, in any part", "[unit]") {
  const ScratchFolder scratch;
  const fs::path saved = write_checkpoint(scratch.path(), 7);
  CHECK(saved == scratch / "step-00000007");
  CHECK(read_all(saved) == all_values());
  CheckpointReader reader(saved);
  CHECK(reader.manifest().state == TrainingState{7, 28, 6, 1, 0, some_stream()});
  const std::vector<float> values = all_values();
  for (std::int64_t begin = 0; begin < 12; ++begin) {
    for (std::int64_t count = 0; begin + count <= 12; ++count) {
      std::vector<float> part(count, -1);
      reader.read(kWeight, weight_shape(), begin, part);
      CHECK(std::equal(part.begin(), part.end(), values.begin() + begin));
    }
  }
}

TEST_CASE("the newest complete checkpoint is chosen", "[unit]") {
  const ScratchFolder scratch;
  CHECK(newest_name(scratch.path()) == "none");
  CHECK(newest_name(scratch / "no such folder") == "none");
  for (const std::int64_t step : {5, 20, 100}) write_checkpoint(scratch.path(), step);
  CHECK(newest_name(scratch.path()) == "step-00000100");

  SECTION("a folder that was never committed does not count") {
    write_parts(scratch.path(), 200);
    CHECK(newest_name(scratch.path()) == "step-00000100");
  }
  SECTION("without its manifest, or with half of it, it is not complete") {
    fs::remove(scratch / "step-00000100/manifest.json");
    const fs::path half = scratch / "step-00000020/manifest.json";
    const std::string text = read_bytes(half);
    write_bytes(half, text.substr(0, text.size() / 2));
    CHECK(newest_name(scratch.path()) == "step-00000005");
  }
  SECTION("with a file missing or cut short it is not complete") {
    fs::remove(scratch / "step-00000100/a.safetensors");
    fs::resize_file(scratch / "step-00000020/b.safetensors", 30);
    CHECK(newest_name(scratch.path()) == "step-00000005");
  }
  SECTION("other things in the folder are passed over") {
    write_bytes(scratch / "step-00000300", "a file");
    fs::create_directory(scratch / "step-00000400");
    fs::create_directory(scratch / "zzz");
    CHECK(newest_name(scratch.path()) == "step-00000100");
  }
}

TEST_CASE("steps of nine digits come after those of eight", "[unit]") {
  const ScratchFolder scratch;
  write_checkpoint(scratch.path(), 100'000'000);
  write_checkpoint(scratch.path(), 99'999'999);
  CHECK(newest_name(scratch.path()) == "step-100000000");
  write_checkpoint(scratch.path(), 100'000'001, 1);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"step-100000001"});
}

TEST_CASE("the newest checkpoints are kept, as many as asked for", "[unit]") {
  const ScratchFolder scratch;
  using Names = std::vector<std::string>;
  write_checkpoint(scratch.path(), 1, 3);
  write_checkpoint(scratch.path(), 2, 3);
  CHECK(names_in(scratch.path()) == Names{"step-00000001", "step-00000002"});
  write_checkpoint(scratch.path(), 3, 0);
  write_checkpoint(scratch.path(), 4, 0);
  CHECK(names_in(scratch.path()).size() == 4);  // 0 keeps all
  // A damaged one is not counted among those kept, nor deleted: it may be all that is left of a step.
  fs::remove(scratch / "step-00000003/a.safetensors");
  write_checkpoint(scratch.path(), 5, 2);
  CHECK(names_in(scratch.path()) == Names{"step-00000003", "step-00000004", "step-00000005"});
  write_checkpoint(scratch.path(), 6, 1);
  CHECK(names_in(scratch.path()) == Names{"step-00000003", "step-00000006"});
}

TEST_CASE("what a killed run left behind is replaced", "[unit]") {
  const ScratchFolder scratch;
  write_parts(scratch.path(), 9);
  write_bytes(scratch / "step-00000009.partial/left over", "x");
  CHECK(read_all(write_checkpoint(scratch.path(), 9)) == all_values());
  CHECK(names_in(scratch / "step-00000009").size() == 3);

  SECTION("a file in place of the partial folder") {
    write_bytes(scratch / "step-00000010.partial", "x");
    CHECK(read_all(write_checkpoint(scratch.path(), 10)) == all_values());
  }
  SECTION("a checkpoint of the same step") {
    fs::remove(scratch / "step-00000009/b.safetensors");
    fs::create_directory(scratch / "step-00000009.replaced");
    CHECK(read_all(write_checkpoint(scratch.path(), 9)) == all_values());
    CHECK(names_in(scratch.path()) == std::vector<std::string>{"step-00000009"});
  }
}

TEST_CASE("a write that fails says so and leaves the former checkpoint", "[unit]") {
  const ScratchFolder scratch;
  const fs::path former = write_checkpoint(scratch.path(), 1);

  SECTION("the disk is full while a device writes") {
    const FileSizeLimit full(100);
    const std::string message = message_of<Error>([&] { write_checkpoint(scratch.path(), 2); });
    CHECK_THAT(message, contains("step-00000002.partial/a.safetensors"));
    CHECK_THAT(message, contains("File too large"));
  }
  SECTION("the disk is full when the manifest is written") {
    const Manifest manifest = write_parts(scratch.path(), 2);
    const FileSizeLimit full(100);
    const std::string message = message_of<Error>([&] { commit_checkpoint(scratch.path(), manifest, 1); });
    CHECK_THAT(message, contains("step-00000002.partial/manifest.json"));
  }
  SECTION("the partial folder is taken away") {
    const Manifest manifest = write_parts(scratch.path(), 2);
    fs::remove_all(scratch / "step-00000002.partial");
    const std::string message = message_of<Error>([&] { commit_checkpoint(scratch.path(), manifest, 1); });
    CHECK_THAT(message, contains("step-00000002.partial/manifest.json: No such file"));
  }
  CHECK(newest_name(scratch.path()) == "step-00000001");
  CHECK(read_all(former) == all_values());
}

TEST_CASE("a folder that cannot be made is named", "[unit]") {
  const ScratchFolder scratch;
  write_bytes(scratch / "checkpoints", "a file");
  const std::string message = message_of<Error>([&] { begin_checkpoint(scratch / "checkpoints", 2); });
  CHECK_THAT(message, contains("checkpoints/step-00000002.partial"));
}

}  // namespace slimpipe::train
