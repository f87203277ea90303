#pragma once
// Training steps of several layouts of one model, compared in one run.

#include <memory>
#include <string>
#include <vector>

#include "app/bench/measure.h"
#include "app/bench/synthetic.h"

namespace slimpipe::app::bench {

struct Layout {
  std::string name;
  config::RunConfig config;
};

/// The layouts step by step in turn, so that a change of the machine's speed meets all of them. Each has a
/// session of its own, alive as long as the comparison; all train on one batch, so microbatches, sequence
/// length and vocabulary are the same.
class LayoutComparison {
 public:
  /// Runs one unmeasured step and `repeats` measured ones of each layout.
  LayoutComparison(std::vector<Layout> layouts, int repeats);

  /// Of layout `index`, a value per measured step.
  [[nodiscard]] const std::vector<double>& seconds(int index) const { return measured(index).seconds; }
  [[nodiscard]] const std::vector<train::StepResult>& results(int index) const {
    return measured(index).results;
  }
  /// Seconds of layout `slower` over those of layout `faster`, step by step.
  [[nodiscard]] Spread gain(int faster, int slower) const;
  /// A row per layout: ms a step, tokens/s (medians), bubble (of the last step), peak MiB of a device.
  void print() const;

 private:
  struct Measured {
    Layout layout;
    std::unique_ptr<PinnedSession> session;
    std::vector<double> seconds;
    std::vector<train::StepResult> results;
  };
  [[nodiscard]] const Measured& measured(int index) const {
    return layouts_.at(static_cast<std::size_t>(index));
  }

  std::vector<Measured> layouts_;
};

/// For benchmarks with two device threads: an error where the model or this process does not allow them.
void expect_two_devices(const BenchOptions& options);

}  // namespace slimpipe::app::bench
