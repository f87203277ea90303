// A run that goes on from a checkpoint is the run that never stopped, to the bit, on the same layout and on
// others.

#include <cmath>

#include "slimpipe/io/files.h"

#include "runtime/train/session_state.h"
#include "support/file_fixtures.h"

namespace slimpipe::test {
namespace {

using schedule::Kind;
namespace fs = std::filesystem;

constexpr int kMicrobatches = 2;

struct Continued {
  fs::path checkpoint;
  SessionState saved;          ///< when the checkpoint was written
  SessionState final;          ///< two steps later, undisturbed
  std::vector<double> losses;  ///< of those steps
};

Continued run_and_save(const MatrixCase& c, const fs::path& folder) {
  train::Session session(matrix_config(c), {});
  session.initialise();
  take_steps(session, kMicrobatches, 0, 2);
  Continued run;
  run.checkpoint = session.save(folder, {.step = 2, .cursor = 4, .updates = 2}, 2);
  run.saved = state_of(session);
  run.losses = take_steps(session, kMicrobatches, 2, 2);
  run.final = state_of(session);
  return run;
}

}  // namespace

TEST_CASE("a loaded checkpoint goes on to the bit", "[runtime]") {
  for (const bool tied : {false, true}) {
    for (const auto dtype : {config::ComputeType::kFp32, config::ComputeType::kBf16}) {
      for (const int p : {1, 2, 4}) {
        MatrixCase c{Kind::kSlimPipe, p, 4, kMicrobatches, 2, tied};
        c.dtype = dtype;
        INFO(c.name());
        const ScratchFolder scratch;
        const Continued run = run_and_save(c, scratch.path());
        train::Session session(matrix_config(c), {});
        session.load(run.checkpoint);
        CHECK(differences(state_of(session), run.saved) == nothing());
        CHECK(take_steps(session, kMicrobatches, 2, 2) == run.losses);
        CHECK(differences(state_of(session), run.final) == nothing());
      }
    }
  }
}

TEST_CASE("saving changes nothing, and the same state is saved in the same bytes", "[runtime]") {
  const MatrixCase c{Kind::kSlimPipe, 2, 4, kMicrobatches, 2, true};
  const ScratchFolder scratch;
  train::Session session(matrix_config(c), {});
  session.initialise();
  take_steps(session, kMicrobatches, 0, 1);
  const SessionState before = state_of(session);
  const fs::path one = session.save(scratch / "one", {.step = 1, .updates = 1}, 1);
  const fs::path two = session.save(scratch / "two", {.step = 1, .updates = 1}, 1);
  CHECK(differences(state_of(session), before, true) == nothing());
  for (const char* name : {"manifest.json", "device-00000.safetensors", "device-00001.safetensors"}) {
    CHECK(read_bytes(one / name) == read_bytes(two / name));
    CHECK_FALSE(read_bytes(one / name).empty());
  }
}

TEST_CASE("a checkpoint of one layout loads to the bit into every other", "[runtime]") {
  for (const bool tied : {false, true}) {
    const ScratchFolder scratch;
    const Continued run = run_and_save({Kind::kSlimPipe, 2, 4, kMicrobatches, 2, tied}, scratch.path());
    const SessionState saved = without_devices(run.saved);
    for (const MatrixCase& c :
         {MatrixCase{Kind::kGpipe, 1, 1, 1, 2, tied}, MatrixCase{Kind::kSlimPipe, 1, 4, 2, 2, tied},
          MatrixCase{Kind::kTeraPipe, 4, 4, 2, 2, tied}, MatrixCase{Kind::kSlimPipe, 4, 16, 3, 1, tied},
          MatrixCase{Kind::kOneFOneB, 2, 1, 2, 2, tied}}) {
      INFO(c.name());
      train::Session session(matrix_config(c), {});
      session.load(run.checkpoint);
      const SessionState loaded = state_of(session);
      CHECK(differences(without_devices(loaded), saved) == nothing());
      if (c.slices == 4) {  // the same sums in the same order
        CHECK(take_steps(session, kMicrobatches, 2, 2) == run.losses);
        CHECK(differences(without_devices(state_of(session)), without_devices(run.final)) == nothing());
      }
    }
  }
}

TEST_CASE("a checkpoint goes from layout to layout and comes back in the same bytes", "[runtime]") {
  const ScratchFolder scratch;
  const MatrixCase two{Kind::kSlimPipe, 2, 4, kMicrobatches, 2, true};
  const Continued run = run_and_save(two, scratch / "two");
  train::Session on_four(matrix_config({Kind::kSlimPipe, 4, 8, kMicrobatches, 2, true}), {});
  on_four.load(run.checkpoint);
  const fs::path four = on_four.save(scratch / "four", {.step = 2, .cursor = 4, .updates = 2}, 1);
  CHECK(fs::exists(four / "device-00003.safetensors"));
  train::Session back(matrix_config(two), {});
  back.load(four);
  const fs::path again = back.save(scratch / "again", {.step = 2, .cursor = 4, .updates = 2}, 1);
  for (const char* name : {"manifest.json", "device-00000.safetensors", "device-00001.safetensors"}) {
    CHECK(read_bytes(again / name) == read_bytes(run.checkpoint / name));
  }
}

TEST_CASE("a checkpoint of another model, or a damaged one, is refused as input", "[runtime]") {
  const ScratchFolder scratch;
  const MatrixCase c{Kind::kSlimPipe, 2, 4, kMicrobatches, 2, false};
  const Continued run = run_and_save(c, scratch.path());
  const auto problem_of = [&](const config::RunConfig& config) {
    train::Session session(config, {});
    return message_of<InputError>([&] { session.load(run.checkpoint); });
  };
  config::RunConfig config = matrix_config(c);
  SECTION("another shape") {
    config.model.ffn = 64;
    CHECK_THAT(problem_of(config), contains("mlp.gate_proj.weight has the shape [56, 40], this run's model "
                                            "needs [64, 40]"));
  }
  SECTION("more layers") {
    config.model.layers = 6;
    CHECK_THAT(problem_of(config), contains("there is no tensor model.layers."));
  }
  SECTION("a number that is not finite") {
    const fs::path file = run.checkpoint / "device-00001.safetensors";
    std::string bytes = read_bytes(file);
    bytes.replace(bytes.size() - 4, 4, std::string("\0\0\x80\x7f", 4));  // infinity, the last number of all
    write_bytes(file, bytes);
    const fs::path manifest_file = run.checkpoint / "manifest.json";
    train::Manifest manifest = train::parse_manifest(read_bytes(manifest_file), manifest_file);
    manifest.files[1].hash = io::hash_file(file);
    write_bytes(manifest_file, train::to_json(manifest));
    const std::string problem = problem_of(config);
    CHECK_THAT(problem, contains(" is inf: the run had diverged when it was saved"));
    CHECK_THAT(problem, contains("of tensor moment2/"));
  }
  SECTION("a flipped bit") {
    const fs::path file = run.checkpoint / "device-00001.safetensors";
    std::string bytes = read_bytes(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_bytes(file, bytes);
    const std::string problem = problem_of(config);
    CHECK_THAT(problem, contains("device-00001.safetensors: the file is damaged"));
    CHECK_THAT(problem, contains("needed for tensor model.layers.2."));
  }
}

TEST_CASE("a checkpoint that cannot be written fails with its cause and leaves the former one", "[runtime]") {
  const ScratchFolder scratch;
  train::Session session(matrix_config({Kind::kSlimPipe, 4, 4, kMicrobatches, 2, false}), {});
  session.initialise();
  const fs::path former = session.save(scratch / "checkpoints", {.step = 1, .updates = 1}, 1);
  SECTION("the disk is full") {
    const FileSizeLimit full(20'000);
    const std::string message =
        message_of<Error>([&] { session.save(scratch / "checkpoints", {.step = 2, .updates = 2}, 1); });
    CHECK_THAT(message, contains("writing the checkpoint"));
    CHECK_THAT(message, contains("step-00000002.partial/device-0000"));
    CHECK_THAT(message, contains("File too large"));
  }
  SECTION("a parameter is not finite") {
    change_master(session, "lm_head.weight", [](std::vector<float>& values) { values[3] = -INFINITY; });
    const std::string message =
        message_of<Error>([&] { session.save(scratch / "checkpoints", {.step = 2, .updates = 2}, 1); });
    CHECK_THAT(message, contains("writing the checkpoint"));
    CHECK_THAT(message, contains("element 3 of tensor lm_head.weight is -inf after the last update"));
  }
  SECTION("a file stands where the folder should be") {
    write_bytes(scratch / "elsewhere", "");
    const std::string message =
        message_of<Error>([&] { session.save(scratch / "elsewhere", {.step = 2, .updates = 2}, 1); });
    CHECK_THAT(message, contains("cannot create the checkpoint folder"));
  }
  CHECK(train::newest_checkpoint(scratch / "checkpoints") == former);
}

}  // namespace slimpipe::test
