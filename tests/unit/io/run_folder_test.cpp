#include "slimpipe/io/run_folder.h"

#include "slimpipe/core/check.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_bytes;

TEST_CASE("a run folder is made with places for logs and checkpoints", "[unit]") {
  const ScratchFolder scratch;
  const RunFolder folder = RunFolder::create(scratch / "runs/a", false);
  CHECK(std::filesystem::is_directory(folder.checkpoints()));
  CHECK(std::filesystem::is_directory(folder.log(0).parent_path()));
  CHECK(folder.log(12) == scratch / "runs/a/logs/rank-12.log");
  CHECK(folder.trace(3) == scratch / "runs/a/trace-3.json");
  CHECK(RunFolder(scratch / "runs/a").metrics() == scratch / "runs/a/metrics.jsonl");
}

TEST_CASE("a folder that holds a run is only used again by a resumed one", "[unit]") {
  const ScratchFolder scratch;
  const RunFolder folder(scratch / "a");
  CHECK_NOTHROW(RunFolder::create(scratch / "a", false));
  CHECK_NOTHROW(RunFolder::create(scratch / "a", false));  // nothing was written yet
  write_bytes(folder.metrics(), "");
  CHECK_NOTHROW(RunFolder::create(scratch / "a", false));  // the run failed before its first step
  write_bytes(folder.metrics(), "{}\n");
  CHECK_THAT(message_of<InputError>([&] { (void)RunFolder::create(scratch / "a", false); }),
             contains("--resume") && contains("--run-dir") && contains((scratch / "a").string()));
  CHECK_NOTHROW(RunFolder::create(scratch / "a", true));
  CHECK(test::read_bytes(folder.metrics()) == "{}\n");
  // Its metrics may be gone: a new run among its checkpoints would mix with it.
  std::filesystem::remove(folder.metrics());
  CHECK_NOTHROW(RunFolder::create(scratch / "a", false));
  std::filesystem::create_directory(folder.checkpoints() / "step-00000001");
  CHECK_THAT(message_of<InputError>([&] { (void)RunFolder::create(scratch / "a", false); }),
             contains("holds a run already (checkpoints)"));
  CHECK_NOTHROW(RunFolder::create(scratch / "a", true));
}

TEST_CASE("a run folder is locked for as long as its run lives", "[unit]") {
  const ScratchFolder scratch;
  {
    const RunFolder folder = RunFolder::create(scratch / "a", false);
    for (const bool resume : {false, true}) {
      CHECK_THAT(message_of<InputError>([&] { (void)RunFolder::create(scratch / "a", resume); }),
                 contains("in use by another run") && contains((scratch / "a").string()));
    }
  }
  CHECK_NOTHROW(RunFolder::create(scratch / "a", false));
}

TEST_CASE("a run folder where a file is, or below one, is refused", "[unit]") {
  const ScratchFolder scratch;
  write_bytes(scratch / "file", "x");
  CHECK_THAT(message_of<InputError>([&] { (void)RunFolder::create(scratch / "file", false); }),
             contains("file") && contains("--run-dir"));
  CHECK_THROWS_AS(RunFolder::create(scratch / "file/a", true), InputError);
}

TEST_CASE("only the first failure of a run is claimed, until a new start", "[unit]") {
  const ScratchFolder scratch;
  const RunFolder folder(scratch / "a");
  const RunFolder other_rank(scratch / "a");
  (void)RunFolder::create(scratch / "a", false);
  CHECK(folder.claim_failure("tensor \"w\" is gone"));
  CHECK_FALSE(other_rank.claim_failure("given up"));
  CHECK(test::read_bytes(folder.failure()) == "{\"cause\":\"tensor \\\"w\\\" is gone\"}\n");
  (void)RunFolder::create(scratch / "a", true);
  CHECK(other_rank.claim_failure("again"));
}

TEST_CASE("a failure is shown where there is no folder to claim it in", "[unit]") {
  const ScratchFolder scratch;
  CHECK(RunFolder(scratch / "none").claim_failure("x"));
}

}  // namespace slimpipe::io
