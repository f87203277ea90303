#include "app/bench/layouts.h"

#include <utility>

#include "slimpipe/core/check.h"

namespace slimpipe::app::bench {

LayoutComparison::LayoutComparison(std::vector<Layout> layouts, int repeats) {
  for (Layout& layout : layouts) {
    auto session = std::make_unique<PinnedSession>(layout.config);
    layouts_.push_back({std::move(layout), std::move(session), {}, {}});
  }
  const train::Batch batch = random_batch(layouts_.front().layout.config);
  for (Measured& measured : layouts_) (void)measured.session->time_step(batch);
  for (int i = 0; i < repeats; ++i) {
    for (Measured& measured : layouts_) {
      measured.seconds.push_back(measured.session->time_step(batch).wall);
      measured.results.push_back(measured.session->last());
    }
  }
}

Spread LayoutComparison::gain(int faster, int slower) const {
  std::vector<double> gains;
  for (std::size_t i = 0; i < seconds(faster).size(); ++i) {
    gains.push_back(seconds(slower)[i] / seconds(faster)[i]);
  }
  return spread_of(gains);
}

void LayoutComparison::print() const {
  Table table({"layout", "ms a step", "tokens/s", "bubble", "peak MiB of a device"});
  for (const Measured& measured : layouts_) {
    const config::RunConfig& config = measured.layout.config;
    const double tokens =
        static_cast<double>(config.training.microbatches) * static_cast<double>(config.data.sequence_length);
    const double median = spread_of(measured.seconds).median;
    table.row({measured.layout.name, fmt::format("{:.0f}", median * 1e3),
               fmt::format("{:.0f}", tokens / median),
               fmt::format("{:.0f} %", measured.session->last().bubble * 100),
               fmt::format("{:.0f}", measured.session->peak_bytes() / (1 << 20))});
  }
  table.print();
}

void expect_two_devices(const BenchOptions& options) {
  if (options.layers % 2 != 0) {
    throw_input_error("--layers {}: expected a multiple of 2, so that two devices can share them",
                      options.layers);
  }
  if (allowed_cores() < 2) throw_error("two devices need two cores, and this process may use one");
}

}  // namespace slimpipe::app::bench
