#include "slimpipe/train/session.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <mutex>
#include <utility>

#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"
#include "slimpipe/core/patience.h"
#include "slimpipe/runtime/stage_runner.h"
#include "slimpipe/schedule/exchange.h"
#include "slimpipe/train/device_checkpoint.h"
#include "slimpipe/train/metrics.h"
#include "slimpipe/train/optimizer.h"

#include "train/activities.h"

namespace slimpipe::train {
namespace {

/// The views of a batch that a device needs.
runtime::StepTokens tokens_for(const runtime::DeviceContext& context, const Batch& batch) {
  runtime::StepTokens tokens;
  tokens.gradient_scale = batch.valid_tokens > 0 ? 1.0 / static_cast<double>(batch.valid_tokens) : 0.0;
  for (const data::Sample& sample : batch.samples) {
    tokens.valid_tokens.push_back(sample.valid_tokens);
    if (context.holds_first_stage) tokens.inputs.emplace_back(sample.inputs);
    if (context.holds_last_stage) tokens.targets.emplace_back(sample.targets);
  }
  return tokens;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

double mean_loss(double loss_sum, const Batch& batch) {
  return batch.valid_tokens > 0 ? loss_sum / static_cast<double>(batch.valid_tokens) : 0.0;
}

/// "device 2 (rank 1), training step 17, step 12 of 300: F0.1.3 attention, layer 2: CAUSE".
std::string describe(const FirstError::Report& report) {
  const FailureSite& site = report.site;
  if (site.device < 0) return report.message;
  std::string text = fmt::format("device {} (rank {})", site.device, std::max(site.rank, 0));
  if (site.step >= 0) text += fmt::format(", training step {}", site.step);
  return fmt::format("{}, {}: {}", text, site.action, report.message);
}

/// Does `work`; a device's failure is thrown as an Error (OutOfMemory, OutOfHostMemory) that says where it
/// happened. What the user can mend speaks of a file and is passed on as it is.
template <typename Work>
void naming_the_site(const FirstError& first_error, Work work) {
  try {
    work();
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    const auto report = first_error.report();
    if (!report) throw;
    if (const auto* lack = dynamic_cast<const device::OutOfMemory*>(&error))
      throw device::OutOfMemory(lack->scope(), describe(*report));
    if (is_out_of_host_memory(error)) throw OutOfHostMemory(describe(*report));
    throw Error(describe(*report));
  }
}

/// The watchdog watches as long as this lives.
class Watch {
 public:
  explicit Watch(runtime::Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.resume(); }
  ~Watch() { watchdog_.pause(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  runtime::Watchdog& watchdog_;
};

}  // namespace

schedule::Spec schedule_spec(const config::RunConfig& config) {
  return {.kind = config.schedule.kind,
          .pipeline = config.parallel.pipeline,
          .virtual_stages = config.parallel.virtual_stages,
          .microbatches = config.training.microbatches,
          .slices = config.schedule.slices,
          .warmup_slope = config.schedule.warmup_slope};
}

schedule::Schedule build_schedule(const config::RunConfig& config) {
  return schedule::with_exchange(schedule::build(schedule_spec(config)), config.schedule.exchange,
                                 config.data.sequence_length / config.schedule.slices,
                                 config.schedule.early_exchange);
}

std::vector<int> stage_layers(const config::RunConfig& config) {
  return runtime::even_layers(config.model.layers, schedule_spec(config).stages());
}

runtime::EngineOptions engine_options(const config::RunConfig& config) {
  return {.model = config.model,
          .compute = compute_type(config),
          .stage_layers = stage_layers(config),
          .threads = config.device.threads,
          .memory_limit = config.memory.limit};
}

std::vector<runtime::Program> compile_programs(const config::RunConfig& config,
                                               const schedule::Schedule& schedule,
                                               const std::vector<int>& devices) {
  const config::ModelConfig& model = config.model;
  const std::int64_t slice_tokens = config.data.sequence_length / config.schedule.slices;
  runtime::CompileInput input;
  input.stage_layers = stage_layers(config);
  input.message_bytes = slice_tokens * model.hidden * size_of(compute_type(config));
  input.tied_bytes = model.tied_embeddings ? model.vocabulary * model.hidden * size_of(DType::kF32) : 0;
  input.devices = devices;
  input.attention = {.tokens = slice_tokens,
                     .heads = model.heads,
                     .kv_heads = model.kv_heads,
                     .head_size = model.head_size,
                     .compute = compute_type(config)};
  std::vector<runtime::Program> programs = runtime::compile(schedule, input);
  const std::vector<std::string> problems = runtime::validate(programs);
  SLIMPIPE_CHECK(problems.empty(), "the compiled schedule is unsound:\n  {}", fmt::join(problems, "\n  "));
  return programs;
}

comm::ParallelSizes parallel_sizes(const config::ParallelConfig& parallel) {
  return {.tensor = parallel.tensor,
          .context = parallel.context,
          .data = parallel.data,
          .pipeline = parallel.pipeline};
}

DType compute_type(const config::RunConfig& config) {
  return config.training.dtype == config::ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
}

runtime::RunnerFactory layer_runner(const config::RunConfig& config) {
  return [model = config.model, compute = compute_type(config),
          recompute =
              config.memory.recompute == "selective" ? model::Recompute::kSelective : model::Recompute::kNone,
          sequence_length = config.data.sequence_length](runtime::DeviceContext& context) {
    return std::make_unique<runtime::StageRunner>(*context.device, *context.store, model, compute, recompute,
                                                  sequence_length, context.chunks);
  };
}

Platform make_platform(const config::RunConfig& config) {
  const std::string& name = config.device.backend;
  if (name != "auto" && name != "cpu") {
    throw_input_error("device.backend: {} is not available in this build; expected auto or cpu", name);
  }
  return {.backend = device::make_cpu_backend(), .make_runner = layer_runner(config)};
}

Session::Session(const config::RunConfig& config, const comm::ProcessEnvironment& processes,
                 Platform platform)
    : config_(config),
      topology_(parallel_sizes(config.parallel), processes.size, processes.rank),
      schedule_(build_schedule(config)),
      table_(config.model),
      programs_(compile_programs(config, schedule_, topology_.pipeline_group(0))),
      backend_(std::move(platform.backend)),
      transport_(processes.mpi
                     ? comm::make_mpi_transport(topology_, first_error_,
                                                {.spare_core = has_spare_core(processes),
                                                 .patience = patience_of(config.log.watchdog_seconds)})
                     : comm::make_in_process_transport(topology_.devices(), first_error_)) {
  naming_the_site(first_error_, [&] {
    engine_ =
        std::make_unique<runtime::Engine>(engine_options(config_), schedule_, table_, topology_, *backend_,
                                          std::move(platform.make_runner), *transport_, first_error_);
  });
  watchdog_ = std::make_unique<runtime::Watchdog>(
      runtime::WatchdogOptions{.patience = patience_of(config.log.watchdog_seconds),
                               .report = [](const std::string& text) { log::warning("watchdog: {}", text); }},
      engine_->progress(), first_error_);
}

Session::~Session() = default;

bool Session::has_spare_core(const comm::ProcessEnvironment& processes) const {
  const int computing = topology_.devices() * config_.device.threads;
  const int wanted = computing + processes.size;
  return usable_cores(wanted, process_cores(), host_cores(), processes) == wanted;
}

const std::vector<runtime::Program>& Session::evaluation_programs(int microbatches) {
  auto it = evaluation_.find(microbatches);
  if (it == evaluation_.end()) {
    schedule::Spec spec = schedule_.spec;
    spec.microbatches = microbatches;
    auto programs =
        compile_programs(config_, schedule::build_forward_only(spec), topology_.pipeline_group(0));
    it = evaluation_.emplace(microbatches, std::move(programs)).first;
  }
  return it->second;
}

void Session::run_devices(const char* activity, const std::function<void(runtime::DeviceContext&)>& body) {
  const Watch watch(*watchdog_);
  naming_the_site(first_error_, [&] {
    engine_->each_device([&](runtime::DeviceContext& context) {
      context.progress.doing(activity);
      body(context);
      context.progress.doing(runtime::Progress::kDone, true);
    });
  });
}

void Session::initialise() {
  run_devices("initial parameters",
              [this](runtime::DeviceContext& context) { context.store->initialise(config_.training.seed); });
}

bool Session::needs_tokens() const {
  const std::vector<int> group = topology_.pipeline_group(0);
  const int last_stage = schedule_.spec.stages() - 1;
  return topology_.is_local(group[schedule_.device_of(0)]) ||
         topology_.is_local(group[schedule_.device_of(last_stage)]);
}

StepResult Session::train_step(const Batch& batch, const UpdatePlan& plan,
                               std::vector<io::TraceEvent>* trace) {
  StepResult result;
  std::mutex mutex;  // guards result and trace, which every device's thread fills
  run_devices("start of the step", [&](runtime::DeviceContext& context) {
    const runtime::Program& program = programs_[context.pipeline_rank];
    std::vector<io::TraceEvent> events;
    context.store->release_gradients();
    context.runner->begin(program, tokens_for(context, batch));
    const runtime::ExecutionTimes times =
        context.executor->run(program, trace != nullptr ? &events : nullptr);

    Activities activities(context, events);
    activities.update("squares of the gradients");
    std::vector<double> values = gradient_squares(context, table_);
    values.push_back(context.holds_last_stage ? sum(context.runner->losses()) : 0.0);
    activities.reduce("sum of losses and gradient norms over the devices");
    context.collectives->all_reduce_sum(values);
    StepResult mine;
    mine.loss = mean_loss(values.back(), batch);
    values.pop_back();
    mine.gradient_norm = norm_of_squares(values);
    mine.skip_cause = what_is_not_finite(mine.loss, values, table_);
    mine.skipped = !mine.skip_cause.empty();
    activities.update("update of the parameters");
    if (!mine.skipped) {
      apply_adamw(context, table_, config_.training,
                  {.learning_rate = plan.learning_rate,
                   .gradient_scale = clip_factor(mine.gradient_norm, config_.training.clip),
                   .update = plan.update});
    }
    context.runner->check_nothing_left();
    activities.reduce("sum of the devices' reports");
    gather_reports(context, times, mine);
    activities.end();

    const std::scoped_lock lock(mutex);
    if (trace != nullptr) trace->insert(trace->end(), events.begin(), events.end());
    result = std::move(mine);  // the same on every device
  });
  return result;
}

void Session::gather_reports(runtime::DeviceContext& context, const runtime::ExecutionTimes& times,
                             StepResult& result) {
  constexpr std::size_t kFixed = 10;  // the nine of the executor, total peak
  constexpr std::size_t kPerDevice = kFixed + device::kNumScopes;
  const std::size_t devices = context.collectives->size();
  std::vector<double> values(devices * kPerDevice);
  double* own = values.data() + context.collectives->rank() * kPerDevice;
  const device::ArenaStats& memory = context.device->arena().stats();
  own[0] = times.wall_ms;
  own[1] = times.compute_ms;
  own[2] = times.wait_ms;
  own[3] = times.send_ms;
  own[4] = times.send_hidden_ms;
  own[5] = times.exchange_bytes;
  own[6] = times.exchange_wait_ms;
  own[7] = times.exchange_send_ms;
  own[8] = times.exchange_send_hidden_ms;
  own[9] = static_cast<double>(memory.total_peak);
  for (std::size_t s = 0; s < device::kNumScopes; ++s) own[kFixed + s] = static_cast<double>(memory.peak[s]);
  context.collectives->all_reduce_sum(values);
  double compute = 0;
  double longest = 0;
  for (std::size_t d = 0; d < devices; ++d) {
    const double* row = values.data() + d * kPerDevice;
    DeviceReport report{.times = {row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8]},
                        .peak_bytes = {},
                        .total_peak_bytes = row[9]};
    std::copy_n(row + kFixed, device::kNumScopes, report.peak_bytes.begin());
    compute += row[1];
    longest = std::max(longest, row[0]);
    result.devices.push_back(report);
  }
  result.bubble = longest > 0 ? std::max(0.0, 1 - compute / (static_cast<double>(devices) * longest)) : 0;
}

double Session::evaluate(const Batch& batch) {
  const auto& programs = evaluation_programs(static_cast<int>(batch.samples.size()));
  double loss = 0;
  std::mutex mutex;
  run_devices("start of the validation", [&](runtime::DeviceContext& context) {
    const runtime::Program& program = programs[context.pipeline_rank];
    context.store->release_gradients();
    context.runner->begin(program, tokens_for(context, batch));
    context.executor->run(program);
    context.progress.doing("sum of the validation loss over the devices", true);
    std::vector<double> value = {context.holds_last_stage ? sum(context.runner->losses()) : 0.0};
    context.collectives->all_reduce_sum(value);
    context.runner->check_nothing_left();
    const std::scoped_lock lock(mutex);
    loss = mean_loss(value[0], batch);
  });
  return loss;
}

std::filesystem::path Session::save(const std::filesystem::path& folder, const TrainingState& state,
                                    int keep) {
  std::filesystem::path saved = folder / checkpoint_name(state.step);
  run_devices("start of the checkpoint", [&](runtime::DeviceContext& context) {
    comm::Collectives& group = *context.collectives;
    if (group.rank() == 0) begin_checkpoint(folder, state.step);
    context.progress.doing("start of the checkpoint by all devices", true);
    group.barrier();
    context.progress.doing("writing the checkpoint");
    const FileRecord own = save_device(context, table_, folder / (checkpoint_name(state.step) + ".partial"));
    // Every device's bytes and hash, in exactly representable halves.
    constexpr std::size_t kPerDevice = 3;
    std::vector<double> values(group.size() * kPerDevice);
    double* row = values.data() + group.rank() * kPerDevice;
    row[0] = static_cast<double>(own.bytes);
    row[1] = static_cast<double>(own.hash >> 32);
    row[2] = static_cast<double>(own.hash & 0xffffffffU);
    context.progress.doing("sum of what the devices have written", true);
    group.all_reduce_sum(values);
    if (group.rank() == 0) {
      context.progress.doing("commit of the checkpoint");
      Manifest manifest =
          layout_manifest(schedule_, table_, topology_.pipeline_group(context.index), stage_layers(config_));
      manifest.state = state;
      for (std::size_t d = 0; d < manifest.files.size(); ++d) {
        const double* r = values.data() + d * kPerDevice;
        manifest.files[d].bytes = static_cast<std::int64_t>(r[0]);
        manifest.files[d].hash = static_cast<std::uint64_t>(r[1]) << 32 | static_cast<std::uint64_t>(r[2]);
      }
      commit_checkpoint(folder, manifest, keep);
    }
    context.progress.doing("commit of the checkpoint by the first device", true);
    group.barrier();
  });
  return saved;
}

void Session::load(const std::filesystem::path& checkpoint) {
  run_devices("reading the checkpoint", [&](runtime::DeviceContext& context) {
    CheckpointReader reader(checkpoint);
    load_device(context, table_, reader);
  });
}

}  // namespace slimpipe::train
