#include "slimpipe/train/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "slimpipe/runtime/dry_run.h"
#include "slimpipe/train/optimizer.h"

namespace slimpipe::train {
namespace {

/// Plans pipeline ranks, one at a time.
class MemoryPlanner {
 public:
  MemoryPlanner(const config::RunConfig& config, Platform platform, int validation_samples)
      : config_(config),
        platform_(std::move(platform)),
        schedule_(schedule::build(schedule_spec(config))),
        table_(config.model),
        tokens_(static_cast<std::size_t>(config.data.sequence_length)) {
    std::vector<int> devices(static_cast<std::size_t>(config.parallel.pipeline));
    std::iota(devices.begin(), devices.end(), 0);
    training_ = compile_programs(config, schedule_, devices);
    if (validation_samples == 0) return;
    schedule::Spec spec = schedule_.spec;
    spec.microbatches = validation_samples;
    validation_ = compile_programs(config, schedule::build_forward_only(spec), devices);
  }

  device::ArenaStats plan(int rank) {
    runtime::DeviceContext context(rank, rank);
    runtime::furnish(
        context, engine_options(config_), schedule_, table_,
        platform_.backend->make_device({.index = rank, .threads = config_.device.threads, .plan_only = true}),
        platform_.make_runner);
    run(context, training_[rank]);
    (void)gradient_squares(context, table_);
    apply_adamw(context, table_, config_.training, {});
    if (!validation_.empty()) run(context, validation_[rank]);
    const device::ArenaStats stats = context.device->arena().stats();
    context.runner.reset();
    context.store.reset();
    return stats;
  }

 private:
  void run(runtime::DeviceContext& context, const runtime::Program& program) {
    context.store->release_gradients();
    context.runner->begin(program, tokens_for(context, program.spec.microbatches));
    runtime::run_dry(program, *context.runner, context.device->stream());
    context.runner->check_nothing_left();
  }

  [[nodiscard]] runtime::StepTokens tokens_for(const runtime::DeviceContext& context,
                                               int microbatches) const {
    const auto rows = static_cast<std::size_t>(microbatches);
    runtime::StepTokens tokens;
    tokens.valid_tokens.assign(rows, config_.data.sequence_length);
    if (context.holds_first_stage) tokens.inputs.assign(rows, tokens_);
    if (context.holds_last_stage) tokens.targets.assign(rows, tokens_);
    return tokens;
  }

  const config::RunConfig& config_;
  Platform platform_;
  schedule::Schedule schedule_;
  model::ParameterTable table_;
  std::vector<std::int32_t> tokens_;        ///< of one sequence; nobody reads them
  std::vector<runtime::Program> training_;  ///< by pipeline rank
  std::vector<runtime::Program> validation_;
};

}  // namespace

std::vector<device::ArenaStats> plan_memory(const config::RunConfig& config, Platform platform,
                                            int validation_samples) {
  MemoryPlanner planner(config, std::move(platform), validation_samples);
  std::vector<device::ArenaStats> plans;
  for (int rank = 0; rank < config.parallel.pipeline; ++rank) plans.push_back(planner.plan(rank));
  return plans;
}

}  // namespace slimpipe::train
