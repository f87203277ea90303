#pragma once
// The devices of this process and everything each of them owns: memory, parameters, layers, executor. The
// train area drives them; nothing here knows of optimizers or files.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "slimpipe/comm/collectives.h"
#include "slimpipe/comm/topology.h"
#include "slimpipe/comm/transport.h"
#include "slimpipe/config/run_config.h"
#include "slimpipe/core/stop.h"
#include "slimpipe/device/backend.h"
#include "slimpipe/model/parameters.h"
#include "slimpipe/runtime/device_threads.h"
#include "slimpipe/runtime/executor.h"
#include "slimpipe/runtime/placement.h"
#include "slimpipe/runtime/progress.h"
#include "slimpipe/runtime/step_runner.h"

namespace slimpipe::runtime {

/// What a local device has. Used only from its own thread (within Engine::each_device).
struct DeviceContext {
  DeviceContext(int device_index, int pipeline_rank_of_device)
      : progress(device_index), index(device_index), pipeline_rank(pipeline_rank_of_device) {}
  Progress progress;
  int index;
  int pipeline_rank;
  std::vector<ChunkPlacement> chunks;  ///< what this device holds of the model
  std::unique_ptr<device::Device> device;
  comm::Endpoint* endpoint = nullptr;
  std::unique_ptr<comm::Collectives> collectives;  ///< over the device's pipeline group
  std::unique_ptr<model::ParameterStore> store;
  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<Executor> executor;
  bool holds_first_stage = false;
  bool holds_last_stage = false;
};

/// Makes the runner of a local device, on its thread, when all else but the executor is there.
using RunnerFactory = std::function<std::unique_ptr<StepRunner>(DeviceContext&)>;

struct EngineOptions {
  config::ModelConfig model;
  DType compute = DType::kF32;
  std::vector<int> stage_layers;  ///< layers of each stage
  int threads = 1;                ///< CPU threads a device
  std::int64_t memory_limit = 0;  ///< bytes a device, 0: none
};

/// Gives a context all that needs no other device: the given device, chunks, parameters, runner.
void furnish(DeviceContext& context, const EngineOptions& options, const schedule::Schedule& schedule,
             const model::ParameterTable& table, std::unique_ptr<device::Device> device,
             const RunnerFactory& make_runner);

class Engine {
 public:
  /// Makes the local devices, each on its thread. All references outlive the engine.
  Engine(const EngineOptions& options, const schedule::Schedule& schedule, const model::ParameterTable& table,
         const comm::Topology& topology, device::Backend& backend, RunnerFactory make_runner,
         comm::Transport& transport, FirstError& first_error);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Runs body on every local device's thread, returns when all are done, throws the first failure once.
  void each_device(const std::function<void(DeviceContext&)>& body);
  [[nodiscard]] std::vector<const Progress*> progress() const;
  /// The training step number that failure reports name.
  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

 private:
  void make_device(DeviceContext& context);

  EngineOptions options_;
  const schedule::Schedule& schedule_;
  const model::ParameterTable& table_;
  const comm::Topology& topology_;
  device::Backend& backend_;
  RunnerFactory make_runner_;
  comm::Transport& transport_;
  FirstError& first_error_;
  std::atomic<std::int64_t> step_{-1};
  std::vector<std::unique_ptr<DeviceContext>> contexts_;
  std::unique_ptr<DeviceThreads> threads_;
};

}  // namespace slimpipe::runtime
