#include "slimpipe/train/metrics.h"

#include <limits>

#include "support/file_fixtures.h"

namespace slimpipe::train {

using namespace slimpipe::test;

namespace {

config::RunConfig small_config() {
  config::RunConfig config;
  config.model = {
      .layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .head_size = 4, .ffn = 16, .vocabulary = 11};
  config.data.sequence_length = 32;
  return config;
}

}  // namespace

TEST_CASE("rates follow from tokens, time and the model's FLOPs", "[unit]") {
  const config::RunConfig config = small_config();
  const double flops = model::flops_per_token(config.model, 32, false);
  StepMetrics metrics;
  metrics.step_ms = 500;
  RateMeter(config, 1000 * flops).fill(metrics, 64);
  CHECK(metrics.tokens_per_s == Approx(128));
  CHECK(metrics.tflops == Approx(128 * flops / 1e12));
  CHECK(metrics.mfu == Approx(0.128));
  CHECK(metrics.mfu_full_attention > metrics.mfu);
  RateMeter(config, std::numeric_limits<double>::quiet_NaN()).fill(metrics, 64);
  CHECK(std::isnan(metrics.mfu));
  CHECK_THAT(progress_text(metrics), contains("mfu n/a"));
}

TEST_CASE("a skipped step says what was not finite, in words and in the metrics", "[unit]") {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.total_steps = 9;
  metrics.result.skipped = true;
  metrics.result.skip_cause = "gradient of lm_head.weight";
  metrics.result.gradient_norm = -std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(progress_text(metrics), contains("step 3/9"));
  CHECK_THAT(progress_text(metrics), contains("norm nan"));
  CHECK_THAT(progress_text(metrics), contains("SKIPPED: gradient of lm_head.weight is not finite"));
  const std::string json = io::to_json(to_json(metrics));
  CHECK_THAT(json, contains("\"skipped\":1"));
  CHECK_THAT(json, contains("\"skip_cause\":\"gradient of lm_head.weight\""));
  CHECK_THAT(json, contains("\"grad_norm\":null"));
}

TEST_CASE("steps that a resumed run does again are taken out of the metrics", "[unit]") {
  const ScratchFolder scratch;
  const auto path = scratch / "metrics.jsonl";
  forget_steps_after(path, 3);  // no file, nothing to do
  CHECK(scratch.files() == 0);
  const auto after = [&](const std::string& before, std::int64_t step) {
    write_bytes(path, before);
    forget_steps_after(path, step);
    return read_bytes(path);
  };
  const std::string one = "{\"step\":1,\"loss\":2.5}\n";
  const std::string two = "{\"step\":2,\"devices\":[{\"step\":9}]}\n";
  const std::string three = "{\"step\":3}\n";
  CHECK(after(one + two + three, 3) == one + two + three);
  CHECK(after(one + two + three, 2) == one + two);
  CHECK(after(one + two + three, 0).empty());
  CHECK(after(one + two + "{\"step\":3", 3) == one + two);   // unfinished
  CHECK(after(one + two + "{\"step\":3}", 3) == one + two);  // whole but for its end of line
  // What cannot be read is left out; what can be read behind it stays.
  CHECK(after(one + "garbage\n" + three, 3) == one + three);
  CHECK(after(one + "[]\n" + three, 3) == one + three);
  CHECK(after(one + "{\"step\":\"2\"}\n" + three, 3) == one + three);
  CHECK(after(one + "{}\n" + three, 2) == one);
  CHECK(after("", 3).empty());
}

TEST_CASE("the cores a run can use are neither more than it asks for nor more than there are", "[unit]") {
  const auto processes = [](int size, int local) {
    comm::ProcessEnvironment environment;
    environment.size = size;
    environment.local_size = local;
    return environment;
  };
  CHECK(usable_cores(4, 2, 2, processes(1, 1)) == 2);    // four devices on two cores
  CHECK(usable_cores(4, 1, 2, processes(1, 1)) == 1);    // the process may use one of them
  CHECK(usable_cores(4, 1, 8, processes(4, 4)) == 4);    // each process bound to a core
  CHECK(usable_cores(4, 2, 2, processes(4, 4)) == 2);    // processes that are not bound
  CHECK(usable_cores(16, 8, 8, processes(4, 2)) == 16);  // two hosts
  CHECK(usable_cores(3, 64, 64, processes(1, 1)) == 3);
}

}  // namespace slimpipe::train
