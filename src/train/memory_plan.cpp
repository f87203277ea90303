#include "slimpipe/train/memory_plan.h"

#include <algorithm>
#include <fmt/format.h>
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
        schedule_(build_schedule(config)),
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

namespace {

constexpr double kMiB = 1 << 20;

std::int64_t largest_peak(const std::vector<device::ArenaStats>& plans) {
  std::int64_t largest = 0;
  for (const device::ArenaStats& plan : plans) largest = std::max(largest, plan.total_peak);
  return largest;
}

struct Alternative {
  std::string settings;  ///< as --set has them
  config::RunConfig config;
};

/// What a user would try, what costs the least speed first: more slices cost nothing but shorter matrix
/// products, recomputation a few percent, a warm-up slope of 1 the hiding of latency.
std::vector<Alternative> alternatives(const config::RunConfig& config) {
  std::vector<Alternative> all;
  const auto add = [&](int slices_times, bool recompute, bool shallow) {
    Alternative a{.settings = {}, .config = config};
    const int slices = config.schedule.slices * slices_times;
    if (slices_times > 1) a.settings += fmt::format(" --set schedule.slices={}", slices);
    if (recompute) a.settings += " --set memory.recompute=selective";
    if (shallow) a.settings += " --set schedule.warmup_slope=1";
    a.config.schedule.slices = slices;
    if (recompute) a.config.memory.recompute = "selective";
    if (shallow) a.config.schedule.warmup_slope = 1;
    const bool changes =
        (slices_times > 1 || recompute || shallow) && (!recompute || config.memory.recompute == "none") &&
        (!shallow || (config.schedule.kind == schedule::Kind::kSlimPipe && config.schedule.warmup_slope > 1));
    if (changes && config.data.sequence_length % slices == 0 &&
        schedule::problems(schedule_spec(a.config), config.model.layers).empty())
      all.push_back(std::move(a));
  };
  for (const bool shallow : {false, true})
    for (const bool recompute : {false, true})
      for (const int times : {1, 2, 4}) add(times, recompute, shallow);
  return all;
}

}  // namespace

std::string format_memory_plan(const std::vector<device::ArenaStats>& plans) {
  std::vector<std::size_t> used;
  for (std::size_t s = 0; s < device::kNumScopes; ++s)
    if (std::ranges::any_of(plans, [s](const auto& plan) { return plan.peak[s] > 0; })) used.push_back(s);
  const auto width_of = [](std::size_t s) {
    return std::max<std::size_t>(name_of(static_cast<device::Scope>(s)).size(), 7) + 2;
  };
  std::string text = "MiB      ";
  for (const std::size_t s : used)
    text += fmt::format("{:>{}}", name_of(static_cast<device::Scope>(s)), width_of(s));
  text += "  peak of all\n";
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    text += fmt::format("device {:<2}", rank);
    for (const std::size_t s : used)
      text += fmt::format("{:>{}.1f}", static_cast<double>(plans[rank].peak[s]) / kMiB, width_of(s));
    text += fmt::format("{:>13.1f}\n", static_cast<double>(plans[rank].total_peak) / kMiB);
  }
  return text;
}

void check_memory_limit(const config::RunConfig& config, int validation_samples) {
  const std::int64_t limit = config.memory.limit;
  if (limit == 0) return;
  const auto plans = plan_memory(config, make_platform(config), validation_samples);
  if (largest_peak(plans) <= limit) return;
  std::string fitting;
  std::int64_t smallest = limit + 1;  // what costs more speed must need less memory to be worth a line
  for (const Alternative& alternative : alternatives(config)) {
    const auto peak =
        largest_peak(plan_memory(alternative.config, make_platform(config), validation_samples));
    if (peak >= smallest) continue;
    smallest = peak;
    fitting += fmt::format("\n  {:.1f} MiB with{}", static_cast<double>(peak) / kMiB, alternative.settings);
  }
  throw_input_error(
      "memory.limit: a device would need {:.1f} MiB, more than the limit of {:.1f} MiB\n{}{}",
      static_cast<double>(largest_peak(plans)) / kMiB, static_cast<double>(limit) / kMiB,
      format_memory_plan(plans),
      fitting.empty()
          ? "More slices (up to 4 times), selective recomputation and a warm-up slope of 1 do not make it "
            "fit: use more pipeline devices, a shorter sequence or a smaller model, or raise memory.limit"
          : "It would fit, the least loss of speed first:" + fitting);
}

std::vector<device::ArenaStats> plan_memory(const config::RunConfig& config, Platform platform,
                                            int validation_samples) {
  MemoryPlanner planner(config, std::move(platform), validation_samples);
  std::vector<device::ArenaStats> plans;
  for (int rank = 0; rank < config.parallel.pipeline; ++rank) plans.push_back(planner.plan(rank));
  return plans;
}

}  // namespace slimpipe::train
