#include "app/bench/synthetic.h"

#include <algorithm>
#include <chrono>

#include "slimpipe/core/random.h"

#include "app/bench/measure.h"

namespace slimpipe::app::bench {

config::RunConfig bench_config(const BenchOptions& options) {
  config::RunConfig config;
  config.model = bench_model(options);
  config.data.sequence_length = options.sequence_length;
  config.schedule.kind = options.slices > 1 ? schedule::Kind::kSlimPipe : schedule::Kind::kGpipe;
  config.schedule.slices = options.slices;
  config.memory.recompute = options.recompute;
  return config;
}

train::Batch random_batch(const config::RunConfig& config) {
  train::Batch batch;
  const RandomStream stream{RandomStream::Use::kTest, 1};
  std::uint64_t index = 0;
  for (int m = 0; m < config.training.microbatches; ++m) {
    data::Sample& sample = batch.samples.emplace_back();
    sample.valid_tokens = config.data.sequence_length;
    for (std::int64_t t = 0; t < config.data.sequence_length; ++t) {
      const auto token = [&] {
        return static_cast<std::int32_t>(random_u64(1, stream, index++) %
                                         static_cast<std::uint64_t>(config.model.vocabulary));
      };
      sample.inputs.push_back(token());
      sample.targets.push_back(token());
    }
  }
  batch.valid_tokens = config.training.microbatches * config.data.sequence_length;
  return batch;
}

PinnedSession::PinnedSession(const config::RunConfig& config) : session_(config, {}) {
  session_.each_device(
      [](runtime::DeviceContext& context) { pin_to_core(allowed_cores() - 1 - context.index); });
  session_.initialise();
}

PinnedSession::StepSeconds PinnedSession::time_step(const train::Batch& batch) {
  StepSeconds seconds;
  const auto add_thread_seconds = [&](double sign) {
    session_.each_device([&](runtime::DeviceContext& context) {
      if (context.index == 0) seconds.thread += sign * thread_seconds();
    });
  };
  add_thread_seconds(-1);
  const auto start = std::chrono::steady_clock::now();
  last_ = session_.train_step(batch, {.learning_rate = 1e-4, .update = ++updates_});
  seconds.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  add_thread_seconds(+1);
  return seconds;
}

double PinnedSession::peak_bytes() const {
  double peak = 0;
  for (const train::DeviceReport& device : last_.devices) peak = std::max(peak, device.total_peak_bytes);
  return peak;
}

}  // namespace slimpipe::app::bench
