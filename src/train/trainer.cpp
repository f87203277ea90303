// The training loop, top-down: train -> Run::loop -> Run::step -> Session::train_step.

#include "slimpipe/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/counted.h"
#include "slimpipe/core/log.h"
#include "slimpipe/device/arena.h"
#include "slimpipe/device/peak.h"
#include "slimpipe/io/files.h"
#include "slimpipe/io/run_folder.h"
#include "slimpipe/io/trace.h"
#include "slimpipe/train/learning_rate.h"
#include "slimpipe/train/memory_plan.h"
#include "slimpipe/train/metrics.h"
#include "slimpipe/train/resume.h"
#include "slimpipe/train/run_data.h"
#include "slimpipe/train/session.h"
#include "slimpipe/train/together.h"

namespace slimpipe::train {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// FLOP/s of the cores the run's devices can use, as measured now; NaN where it cannot be.
double measured_run_peak(const config::RunConfig& config, const Session& session,
                         const comm::ProcessEnvironment& processes) {
  const int wanted = session.topology().devices() * config.device.threads;
  return device::measured_cpu_peak_flops(compute_type(config)) *
         usable_cores(wanted, session.process_cores(), host_cores(), processes);
}

/// Which settings would make smaller what a process keeps besides its devices' memory: the step's program and
/// the tokens of its sequences.
std::string host_memory_advice(const config::RunConfig& config) {
  return fmt::format(
      "\nTo need less on the host: fewer training.microbatches (is {}), schedule.slices ({}) or "
      "training.validation_samples ({}), a shorter data.sequence_length ({}), fewer devices a process "
      "(start more with mpirun); or let the process have more memory (ulimit -v, the machine's)",
      config.training.microbatches, config.schedule.slices, config.training.validation_samples,
      config.data.sequence_length);
}

/// Which settings would make the run smaller on a device, where memory for `scope` lacked.
std::string memory_advice(const config::RunConfig& config, device::Scope scope) {
  using device::Scope;
  // Slices and sequences make none of these smaller, nor does bf16: in either type a parameter, its remainder
  // and its moments have 12 bytes.
  if (scope == Scope::kWeights || scope == Scope::kMasterWeights || scope == Scope::kOptimizer) {
    return fmt::format(
        "\nTo have fewer parameters on each device: more pipeline devices (parallel.pipeline is {}), or a "
        "smaller model; or raise memory.limit",
        config.parallel.pipeline);
  }
  return fmt::format(
      "\nTo need less on each device: more pipeline devices (parallel.pipeline is {}), more slices "
      "(schedule.slices is {}), schedule.warmup_slope 1 (is {}), memory.recompute selective (is {}), "
      "bf16 (training.dtype), a shorter data.sequence_length ({}); or raise memory.limit",
      config.parallel.pipeline, config.schedule.slices, config.schedule.warmup_slope, config.memory.recompute,
      config.data.sequence_length);
}

/// What to do about a failure, to follow its text; empty where that says it.
std::string advice_on(const std::exception& failure, const config::RunConfig& config) {
  if (const auto* lack = dynamic_cast<const device::OutOfMemory*>(&failure))
    return memory_advice(config, lack->scope());
  return is_out_of_host_memory(failure) ? host_memory_advice(config) : "";
}

/// One run on this process.
class Run {
 public:
  Run(const TrainRequest& request, io::RunFolder& folder, const RunData& data,
      const std::optional<ResumePoint>& resume_point, comm::MpiSession& processes)
      : config_(request.configuration.config),
        resolved_configuration_(config::dump(request.configuration, true)),
        folder_(folder),
        data_(data),
        processes_(processes.environment()),
        main_process_(processes_.rank == 0),
        session_(config_, processes_),
        rates_(config_, measured_run_peak(config_, session_, processes_)),
        progress_(main_process_, processes_.mpi, config_.log.every) {
    if (resume_point) {
      resume(*resume_point);
    } else {
      session_.initialise();
    }
    state_.stream = data_.stream();
    state_.model = config::identity_of(config_.model);
    if (main_process_) metrics_.emplace(folder.metrics());
  }

  /// Trains to the end.
  void loop() {
    const auto start = Clock::now();
    announce();
    if (state_.step >= config_.training.steps) {
      progress_.note(fmt::format("nothing to do: {} steps are done, training.steps is {}", state_.step,
                                 config_.training.steps));
      return;
    }
    if (main_process_) {
      std::error_code ignored;
      fs::remove(folder_.summary(), ignored);  // of the run that is gone on with: it says that all is well
      io::write_text_atomically(folder_.config(), resolved_configuration_);
    }
    std::optional<double> first_validation;
    std::optional<double> last_validation = validate();
    first_validation = last_validation;
    if (last_validation)
      progress_.note(fmt::format("step {}: validation loss {:.4f}", state_.step, *last_validation));
    while (state_.step < config_.training.steps) {
      StepMetrics metrics = step();
      if (!folder_.is_still_there())
        throw_error(
            "the run folder {} was moved, removed or replaced during the run: nothing is written into what "
            "is "
            "there now",
            folder_.path().string());
      if (metrics.validation_loss) last_validation = metrics.validation_loss;
      progress_.show(metrics);
      if (metrics_) metrics_->write(to_json(metrics));
      last_loss_ = metrics.result.loss;
      checkpoint_if_due();
      stop_after_too_many_skips(metrics);
    }
    write_summary(first_validation, last_validation, milliseconds_since(start) / 1e3);
    if (state_.skipped_in_row > 0) {
      throw_error("the run ended on {} skipped steps, so its last state was not saved; lower training.lr",
                  state_.skipped_in_row);
    }
  }

 private:
  void announce() {
    const auto& p = config_.parallel;
    progress_.note(fmt::format(
        "{} parameters, {} ({} backend) in {}; schedule {} pipeline {} slices {} "
        "microbatches {} "
        "of {} tokens; {}",
        session_.table().total_size(), counted(session_.topology().devices(), "device"),
        session_.backend_name(), counted(processes_.size, "process", "es"),
        schedule::name_of(config_.schedule.kind), p.pipeline, config_.schedule.slices,
        config_.training.microbatches, config_.data.sequence_length, name_of(compute_type(config_))));
    progress_.note(fmt::format("run folder {}", folder_.path().string()));
    log::write_to_files(log::Level::kInfo,
                        fmt::format("rank {} of {}, {} a device: devices {}", processes_.rank,
                                    processes_.size, counted(config_.device.threads, "thread"),
                                    fmt::join(session_.topology().local_devices(), ", ")));
  }

  void resume(const ResumePoint& point) {
    state_ = point.state;
    session_.load(point.checkpoint);
    if (main_process_) forget_steps_after(folder_.metrics(), state_.step);
    progress_.note(fmt::format("resumed from {}", point.checkpoint.string()));
    if (main_process_ && config_.log.trace && config_.log.trace_step <= state_.step)
      log::warning("no trace: step {} (log.trace_step) is done already, {} steps are", config_.log.trace_step,
                   state_.step);
  }

  std::optional<double> validate() {
    if (!data_.has_validation()) return std::nullopt;
    return session_.evaluate(data_.validation_batch(session_.needs_tokens()));
  }

  StepMetrics step() {
    const auto start = Clock::now();
    const int microbatches = config_.training.microbatches;
    StepMetrics metrics;
    metrics.step = state_.step + 1;
    metrics.total_steps = config_.training.steps;
    metrics.learning_rate = learning_rate(config_.training, metrics.step);
    session_.set_step(metrics.step);
    const bool traced = config_.log.trace && metrics.step == config_.log.trace_step;
    std::vector<io::TraceEvent> trace;
    metrics.result = session_.train_step(
        data_.training_batch(state_.cursor, microbatches, session_.needs_tokens()),
        {.learning_rate = metrics.learning_rate, .update = state_.updates + 1}, traced ? &trace : nullptr);
    advance(metrics.result);
    metrics.step_ms = milliseconds_since(start);
    metrics.tokens = state_.cursor * config_.data.sequence_length;
    rates_.fill(metrics, microbatches * config_.data.sequence_length);
    if (traced) io::write_trace(folder_.trace(processes_.rank), trace, processes_.rank);
    const std::int64_t every = config_.training.validation_every;
    const bool last = state_.step == config_.training.steps;
    if (last || (every > 0 && state_.step % every == 0)) metrics.validation_loss = validate();
    return metrics;
  }

  /// A skipped step still advances step and cursor, so that the same data is not met again.
  void advance(const StepResult& result) {
    ++state_.step;
    state_.cursor += config_.training.microbatches;
    if (result.skipped) {
      ++state_.skipped;
      ++state_.skipped_in_row;
      if (main_process_) {
        log::warning("step {} is skipped: {} is not finite ({} in a row, {} in all)", state_.step,
                     result.skip_cause, state_.skipped_in_row, state_.skipped);
      }
    } else {
      ++state_.updates;
      state_.skipped_in_row = 0;
    }
  }

  void checkpoint_if_due() {
    const config::CheckpointConfig& checkpoint = config_.checkpoint;
    const bool last = state_.step == config_.training.steps;
    const bool due = checkpoint.every > 0 && state_.step % checkpoint.every == 0;
    if (!due && !(last && checkpoint.at_end)) return;
    if (state_.skipped_in_row > 0) {
      // The state is the one saved before the first skip or worse; rotation must not trade good ones for it.
      if (main_process_) log::warning("not saved: step {} was skipped", state_.step);
      return;
    }
    const fs::path saved = session_.save(folder_.checkpoints(), state_, checkpoint.keep);
    if (main_process_) log::info("saved {}", saved.string());
  }

  void stop_after_too_many_skips(const StepMetrics& metrics) const {
    if (state_.skipped_in_row < config_.training.max_skipped_steps) return;
    throw_error(
        "{} steps in a row were not finite (last: {} at step {}); training.max_skipped_steps is {}. Lower "
        "training.lr, or look at the data around sample {}",
        state_.skipped_in_row, metrics.result.skip_cause, state_.step, config_.training.max_skipped_steps,
        state_.cursor);
  }

  void write_summary(std::optional<double> first_validation, std::optional<double> last_validation,
                     double seconds) {
    if (!main_process_) return;
    const auto or_null = [](std::optional<double> value) -> io::JsonValue {
      if (value) return *value;
      return nullptr;
    };
    const io::JsonObject summary = {{"steps", state_.step},
                                    {"samples", state_.cursor},
                                    {"skipped", state_.skipped},
                                    {"final_loss", last_loss_},
                                    {"initial_validation_loss", or_null(first_validation)},
                                    {"final_validation_loss", or_null(last_validation)},
                                    {"parameters", session_.table().total_size()},
                                    {"devices", std::int64_t{session_.topology().devices()}},
                                    {"processes", std::int64_t{processes_.size}},
                                    {"seconds", seconds}};
    io::write_text_atomically(folder_.summary(), io::to_json(summary) + "\n");
    progress_.note(fmt::format("done: {} steps in {:.1f} s, loss {:.4f}; see {}", state_.step, seconds,
                               last_loss_, folder_.summary().string()));
  }

  const config::RunConfig& config_;
  std::string resolved_configuration_;
  io::RunFolder& folder_;
  const RunData& data_;
  comm::ProcessEnvironment processes_;
  bool main_process_;
  Session session_;
  RateMeter rates_;
  ProgressLine progress_;
  std::optional<io::JsonLinesWriter> metrics_;
  TrainingState state_;
  double last_loss_ = 0;
};

/// Ends a failed run: the first process to fail names the cause, once, and ends the others.
[[noreturn]] void fail(comm::MpiSession& processes, io::RunFolder& folder, ExitStatus status,
                       const std::string& text) {
  const bool first = folder.claim_failure(text);
  if (!processes.environment().mpi) {
    log::write_to_files(log::Level::kError, "the run has failed: " + text);
    if (status == kExitBadInput) throw InputError(text);
    throw Error(text);
  }
  if (first) log::error("the run has failed: {}", text);
  processes.abort(status);
}

/// Devices asked for against devices there are. That per_process divides them is a rule of the configuration.
void check_devices(const config::RunConfig& config, const comm::ProcessEnvironment& processes) {
  const comm::Topology topology(parallel_sizes(config.parallel), processes.size, 0);
  const int per_process = config.device.per_process;
  if (per_process > 0 && per_process != topology.devices_per_process()) {
    throw_input_error(
        "device.per_process is {}, so {} drive{} {}, but the parallel sizes ask for {}: start {} with "
        "mpirun, "
        "or change device.per_process (0 shares all devices evenly) or parallel.pipeline",
        per_process, counted(processes.size, "process", "es"), processes.size == 1 ? "s" : "",
        counted(std::int64_t{processes.size} * per_process, "device"), topology.devices(),
        counted(topology.devices() / per_process, "process", "es"));
  }
}

/// What a process has before the run starts.
struct Prepared {
  std::optional<RunData> data;
  io::RunFolder folder;  ///< locked, on the first process
  std::optional<ResumePoint> resume_point;
};

/// What every process must have right before the run starts. Throws on every process alike, naming the rank
/// that met the problem.
Prepared preflight(const TrainRequest& request, comm::MpiSession& processes) {
  const config::RunConfig& config = request.configuration.config;
  Prepared prepared{.data = {}, .folder = io::RunFolder(request.run_folder), .resume_point = {}};
  check_same_everywhere(processes, "the configuration", config::settings_text(config));
  together(processes, [&] {
    const std::vector<std::string> problems = config::training_problems(config);
    if (!problems.empty()) throw_input_error("{}", fmt::join(problems, "\n"));
    check_devices(config, processes.environment());
    prepared.data.emplace(config);
    check_memory_limit(config, prepared.data->validation_samples());
    std::error_code none;
    if (request.resume && !fs::is_directory(request.run_folder, none)) {
      throw_input_error(
          "--resume: there is no run folder {}, so there is no checkpoint in it; start without "
          "--resume",
          request.run_folder.string());
    }
    if (processes.environment().rank == 0) {
      prepared.folder = io::RunFolder::create(request.run_folder, request.resume);
    }
  });
  check_same_everywhere(processes, "the data", prepared.data->identity_text());
  check_same_everywhere(processes, fmt::format("the run folder {} (its .lock)", request.run_folder.string()),
                        prepared.folder.mark());
  if (request.resume) {  // once the folder is locked
    together(processes, [&] {
      prepared.resume_point = find_resume_point(prepared.folder.checkpoints(), config.model,
                                                prepared.data->stream(), processes.environment().rank == 0);
    });
    const fs::path& checkpoint = prepared.resume_point->checkpoint;
    check_same_everywhere(processes, checkpoint.string(), manifest_text(checkpoint));
  }
  return prepared;
}

}  // namespace

void train(const TrainRequest& request, comm::MpiSession& processes) {
  Prepared prepared = preflight(request, processes);
  io::RunFolder& folder = prepared.folder;
  try {
    log::add_file(folder.log(processes.environment().rank));
    Run(request, folder, *prepared.data, prepared.resume_point, processes).loop();
  } catch (const std::exception& error) {
    fail(processes, folder, exit_status_of(error),
         cause_of(error) + advice_on(error, request.configuration.config));
  }
}

}  // namespace slimpipe::train
