#pragma once
// Training steps on random tokens, for measurements.

#include "slimpipe/train/session.h"

#include "app/bench/benchmarks.h"

namespace slimpipe::app::bench {

/// One device, one microbatch; sizes, slices and recomputation from the options.
[[nodiscard]] config::RunConfig bench_config(const BenchOptions& options);
[[nodiscard]] train::Batch random_batch(const config::RunConfig& config);

/// A session whose device threads are pinned to a core each (the last allowed ones).
class PinnedSession {
 public:
  explicit PinnedSession(const config::RunConfig& config);
  struct StepSeconds {
    double wall = 0;
    double thread = 0;  ///< processor time of the first device's thread
  };
  /// One whole training step: forward, backward, norm, update.
  StepSeconds time_step(const train::Batch& batch);
  [[nodiscard]] const train::StepResult& last() const { return last_; }
  /// The largest device's peak of all scopes.
  [[nodiscard]] double peak_bytes() const;

 private:
  train::Session session_;
  train::StepResult last_;
  std::int64_t updates_ = 0;
};

}  // namespace slimpipe::app::bench
