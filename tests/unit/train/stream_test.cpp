// Which changes of a run's data make its place in the stream of samples meaningless.

#include "slimpipe/train/run_data.h"

#include "unit/data/token_file_fixtures.h"
#include "unit/train/checkpoint_fixtures.h"

namespace slimpipe::train {

using namespace slimpipe::test;

namespace {

using Lines = std::vector<std::string>;

template <typename Change>
Lines after(Change change) {
  data::StreamIdentity now = some_stream();
  change(now);
  return stream_differences(some_stream(), now);
}

}  // namespace

TEST_CASE("a stream does not differ from itself", "[unit]") {
  CHECK(stream_differences(some_stream(), some_stream()).empty());
}

TEST_CASE("each value that samples depend on is named, then and now", "[unit]") {
  using Stream = data::StreamIdentity;
  CHECK(after([](Stream& s) { s.file_fingerprint = 1; }) ==
        Lines{"data.train: 5000 tokens with fingerprint 00c0ffee12345678 in the checkpoint, 5000 tokens with "
              "fingerprint 0000000000000001 now"});
  CHECK(after([](Stream& s) { s.file_tokens = 6000; }) ==
        Lines{"data.train: 5000 tokens with fingerprint 00c0ffee12345678 in the checkpoint, 6000 tokens with "
              "fingerprint 00c0ffee12345678 now"});
  CHECK(
      after([](Stream& s) { s.end_token = 4500; }) ==
      Lines{"tokens to train on (data.validation_fraction, data.validation): [100, 4000) in the checkpoint, "
            "[100, 4500) now"});
  CHECK(after([](Stream& s) { s.sequence_length = 64; }) ==
        Lines{"data.sequence_length: 32 in the checkpoint, 64 now"});
  CHECK(after([](Stream& s) { s.shuffle_window = 1; }) ==
        Lines{"data.shuffle_window: 16 in the checkpoint, 1 now"});
  CHECK(after([](Stream& s) { s.seed = 7; }) ==
        Lines{"training.seed: 18446744073709551615 in the checkpoint, 7 now"});
  CHECK(after([](Stream& s) {
          s = {.file_tokens = 9, .end_token = 8, .sequence_length = 2, .shuffle_window = 3, .seed = 4};
        }).size() == 5);
}

TEST_CASE("a value that no sample depends on may change", "[unit]") {
  data::StreamIdentity saved = some_stream();
  data::StreamIdentity now = saved;
  SECTION("windows longer than an epoch") {
    saved.shuffle_window = saved.samples_per_epoch();
    now.shuffle_window = 1 << 20;
  }
  SECTION("the seed of samples in the file's order") {
    saved.shuffle_window = now.shuffle_window = 1;
    now.seed = 7;
  }
  CHECK(stream_differences(saved, now).empty());
}

TEST_CASE("a validation of more samples than a step may have is refused where the data has so many",
          "[unit]") {
  const ScratchFolder folder;
  write_counting_file(folder / "t", 1000, 257);
  config::RunConfig config;
  config.model.vocabulary = 257;
  config.model.layers = schedule::kMaxLayerForwards / 8;
  config.schedule.slices = 2;
  config.data.train = config.data.validation = folder / "t";
  config.data.sequence_length = 8;
  const auto load = [&](std::int64_t samples) {
    config.training.validation_samples = samples;
    const RunData data(config);
  };
  CHECK_NOTHROW(load(4));
  CHECK_THAT(
      message_of<InputError>([&] { load(5); }),
      contains("training.validation_samples: 5 samples × slices 2") && contains("set it to 4 or less"));
  config.data.sequence_length = 300;  // the file has three samples
  CHECK_NOTHROW(load(5));
}

}  // namespace slimpipe::train
