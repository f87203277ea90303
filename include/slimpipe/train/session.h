#pragma once
// A training session: model, schedule, programs and devices of one run, ready to take steps. Of files it
// knows the folders of checkpoints (save, load); of learning-rate schedules and where tokens come from,
// nothing.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/config/run_config.h"
#include "slimpipe/data/batch_source.h"
#include "slimpipe/device/backend.h"
#include "slimpipe/runtime/engine.h"
#include "slimpipe/runtime/watchdog.h"
#include "slimpipe/train/checkpoint.h"

namespace slimpipe::train {

/// The samples of one step or validation: one a microbatch.
struct Batch {
  std::vector<data::Sample> samples;  ///< without tokens where no device of this process needs them
  std::int64_t valid_tokens = 0;      ///< targets that are not ignored, over the whole global batch
};

struct UpdatePlan {
  double learning_rate = 0;
  std::int64_t update = 1;  ///< 1-based number this update has if it is applied
};

/// What one device did in a step.
struct DeviceReport {
  runtime::ExecutionTimes times;
  std::array<double, device::kNumScopes> peak_bytes{};  ///< since the session began
  double total_peak_bytes = 0;
};

struct StepResult {
  double loss = 0;           ///< mean over valid tokens
  double gradient_norm = 0;  ///< before clipping
  bool skipped = false;      ///< loss or gradient was not finite: nothing was updated
  std::string skip_cause;    ///< "gradient of model.layers.3.mlp.down_proj.weight" or "loss"
  double bubble = 0;         ///< 1 - compute time / (devices × longest program), as measured
  std::vector<DeviceReport> devices;
};

/// What a session runs on: where its devices come from, and what does their steps.
struct Platform {
  std::unique_ptr<device::Backend> backend;
  runtime::RunnerFactory make_runner;
};

/// What `device.backend` names, running the layers. Throws InputError for one that this build does not have.
[[nodiscard]] Platform make_platform(const config::RunConfig& config);
/// The layers of the model, on the devices of any backend.
[[nodiscard]] runtime::RunnerFactory layer_runner(const config::RunConfig& config);

/// A device's failure in any call is thrown as an Error that names device, rank, training step and action (an
/// InputError, which speaks of a file, as it is). Nothing can be done with the session afterwards.
class Session {
 public:
  /// Builds everything for `config` on this process of `processes`. Throws InputError where devices and
  /// processes do not fit.
  Session(const config::RunConfig& config, const comm::ProcessEnvironment& processes)
      : Session(config, processes, make_platform(config)) {}
  Session(const config::RunConfig& config, const comm::ProcessEnvironment& processes, Platform platform);
  ~Session();

  /// Fresh parameters from the seed.
  void initialise();
  /// Forward, backward, reduction, and the update unless something was not finite. Appends the events of
  /// the execution to `trace` where it is not null.
  StepResult train_step(const Batch& batch, const UpdatePlan& plan,
                        std::vector<io::TraceEvent>* trace = nullptr);
  /// Mean loss over the batch's valid tokens; nothing changes.
  double evaluate(const Batch& batch);

  /// Every process calls it. `folder` holds all checkpoints of the run. Returns the checkpoint's path.
  std::filesystem::path save(const std::filesystem::path& folder, const TrainingState& state, int keep);
  void load(const std::filesystem::path& checkpoint);

  /// Runs body on the devices' threads: for tests and measurements.
  void each_device(const std::function<void(runtime::DeviceContext&)>& body) { engine_->each_device(body); }
  void set_step(std::int64_t step) { engine_->set_step(step); }

  [[nodiscard]] const comm::Topology& topology() const { return topology_; }
  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] const model::ParameterTable& table() const { return table_; }
  [[nodiscard]] std::string_view backend_name() const { return backend_->name(); }
  /// Cores this process may run on.
  [[nodiscard]] int process_cores() const { return backend_->device_count(); }
  /// Whether a device of this process needs the tokens of a batch.
  [[nodiscard]] bool needs_tokens() const;
  /// The failure that ended the session, where one did.
  [[nodiscard]] const FirstError& first_error() const { return first_error_; }

 private:
  /// Whether every process has a core beyond those that its devices compute with.
  [[nodiscard]] bool has_spare_core(const comm::ProcessEnvironment& processes) const;
  [[nodiscard]] const std::vector<runtime::Program>& evaluation_programs(int microbatches);
  /// Runs body on every local device's thread under the watchdog; `activity`, a literal, is what the devices
  /// begin with.
  void run_devices(const char* activity, const std::function<void(runtime::DeviceContext&)>& body);
  void gather_reports(runtime::DeviceContext& context, const runtime::ExecutionTimes& times,
                      StepResult& result);

  config::RunConfig config_;
  FirstError first_error_;
  comm::Topology topology_;
  schedule::Schedule schedule_;
  model::ParameterTable table_;
  std::vector<runtime::Program> programs_;                   ///< by pipeline rank
  std::map<int, std::vector<runtime::Program>> evaluation_;  ///< by number of microbatches
  std::unique_ptr<device::Backend> backend_;
  std::unique_ptr<comm::Transport> transport_;
  std::unique_ptr<runtime::Engine> engine_;
  std::unique_ptr<runtime::Watchdog> watchdog_;
};

/// The schedule a configuration asks for.
[[nodiscard]] schedule::Spec schedule_spec(const config::RunConfig& config);
/// Of a training step, with its exchange.
[[nodiscard]] schedule::Schedule build_schedule(const config::RunConfig& config);
[[nodiscard]] runtime::EngineOptions engine_options(const config::RunConfig& config);
/// The schedule's programs by pipeline rank, proved sound; `devices`: of each pipeline rank.
[[nodiscard]] std::vector<runtime::Program> compile_programs(const config::RunConfig& config,
                                                             const schedule::Schedule& schedule,
                                                             const std::vector<int>& devices);
/// Layers of each stage.
[[nodiscard]] std::vector<int> stage_layers(const config::RunConfig& config);
[[nodiscard]] DType compute_type(const config::RunConfig& config);
[[nodiscard]] comm::ParallelSizes parallel_sizes(const config::ParallelConfig& parallel);

}  // namespace slimpipe::train
