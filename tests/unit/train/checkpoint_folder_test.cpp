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
  CHECK(reader.manifest().state == TrainingState{7, 28, 6, 1, 0, some_stream(), some_model()});
  const std::vector<float> values = all_values();
  for (std::int64_t begin = 0; begin < 12; ++begin) {
    for (std::int64_t count = 0; begin + count <= 12; ++count) {
      std::vector<float> part(count, -1);
      reader.read(kWeight, weight_shape(), begin, part);
      CHECK(std::equal(part.begin(), part.end(), values.begin() + begin));
    }
  }
}

TEST_CASE("the newest checkpoint is chosen", "[unit]") {
  const ScratchFolder scratch;
  CHECK(newest_name(scratch.path()) == "none");
  CHECK(newest_name(scratch / "no such folder") == "none");
  for (const std::int64_t step : {5, 20, 100}) write_checkpoint(scratch.path(), step);
  CHECK(newest_name(scratch.path()) == "step-00000100");

  SECTION("a folder that was never committed does not count") {
    write_parts(scratch.path(), 200);
  }
  SECTION("names that no checkpoint has are passed over") {
    for (const char* name : {"step-300", "step-00000300.old", "step-00000300 (copy)", "zzz"}) {
      fs::create_directory(scratch / name);
    }
  }
  SECTION("a damaged one that is older is no hindrance") {
    fs::remove(scratch / "step-00000020/manifest.json");
  }
  CHECK(newest_name(scratch.path()) == "step-00000100");
}

TEST_CASE("a damaged newest checkpoint is refused, with what is wrong and the way on", "[unit]") {
  const ScratchFolder scratch;
  for (const std::int64_t step : {5, 20, 100}) write_checkpoint(scratch.path(), step);
  const fs::path newest = scratch / "step-00000100";
  std::string damage;
  SECTION("without its manifest") {
    fs::remove(newest / "manifest.json");
    damage = "its manifest.json is missing";
  }
  SECTION("with half of its manifest") {
    const std::string text = read_bytes(newest / "manifest.json");
    write_bytes(newest / "manifest.json", text.substr(0, text.size() / 2));
    damage = (newest / "manifest.json").string() + ": not a checkpoint manifest";
  }
  SECTION("without one of its files") {
    fs::remove(newest / "a.safetensors");
    damage = "its file a.safetensors is missing";
  }
  SECTION("with a file cut short") {
    fs::resize_file(newest / "b.safetensors", 30);
    damage = "its file b.safetensors has 30 bytes, the manifest says ";
  }
  SECTION("emptied") {
    fs::remove_all(newest);
    fs::create_directory(newest);
    damage = "its manifest.json is missing";
  }
  SECTION("with another file in its place") {
    fs::remove_all(newest);
    write_bytes(newest, "a file");
    damage = "it is not a folder";
  }
  SECTION("with another one's name") {
    fs::remove_all(newest);
    fs::rename(scratch / "step-00000020", newest);
    write_checkpoint(scratch.path(), 20);
    damage = "its manifest.json is of step 20: the folder's name was step-00000020";
  }
  const auto problem = [&] {
    return message_of<InputError>([&] { (void)newest_checkpoint(scratch.path()); });
  };
  CHECK_THAT(problem(),
             contains("nothing can go on from the newest checkpoint, " + newest.string() + ": " + damage));
  const auto way_on = [&](const std::string& aside, const char* step) {
    return contains(
        fmt::format(". Remove or rename {} to go on from the newest whole checkpoint before it, {}", aside,
                    (scratch / step).string()));
  };
  CHECK_THAT(problem(), way_on(newest.string(), "step-00000020"));

  // The next one has its size but not its content.
  std::string bytes = read_bytes(scratch / "step-00000020/b.safetensors");
  bytes.back() ^= 1;
  write_bytes(scratch / "step-00000020/b.safetensors", bytes);
  CHECK_THAT(problem(),
             way_on(newest.string() + " and " + (scratch / "step-00000020").string(), "step-00000005"));
  fs::remove(scratch / "step-00000005/manifest.json");
  CHECK_THAT(problem(),
             contains("There is no whole checkpoint before it: mend it from a copy, or start a new run in "
                      "another --run-dir"));
}

TEST_CASE("a flipped bit is found when it is read, and the way on is named", "[unit]") {
  const ScratchFolder scratch;
  for (const std::int64_t step : {5, 20}) write_checkpoint(scratch.path(), step);
  const fs::path file = scratch / "step-00000020/b.safetensors";
  std::string bytes = read_bytes(file);
  bytes.back() ^= 1;
  write_bytes(file, bytes);
  const std::string problem = message_of<InputError>([&] { read_all(scratch / "step-00000020"); });
  CHECK_THAT(problem, contains(file.string() + ": the file is damaged (needed for tensor layer.weight)"));
  CHECK_THAT(problem, contains(fmt::format(
                          "Remove or rename {} to go on from the newest whole checkpoint before it, {}",
                          (scratch / "step-00000020").string(), (scratch / "step-00000005").string())));
}

TEST_CASE("a folder of checkpoints that cannot be read is not taken for an empty one", "[unit]") {
  const ScratchFolder scratch;
  write_bytes(scratch / "checkpoints", "a file");
  CHECK_THAT(message_of<Error>([&] { (void)newest_checkpoint(scratch / "checkpoints"); }),
             contains("cannot read the folder of checkpoints " + (scratch / "checkpoints").string()));
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
