#include "slimpipe/runtime/engine.h"

#include <algorithm>
#include <utility>

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

Engine::Engine(const EngineOptions& options, const schedule::Schedule& schedule,
               const model::ParameterTable& table, const comm::Topology& topology, device::Backend& backend,
               RunnerFactory make_runner, comm::Transport& transport, FirstError& first_error)
    : options_(options),
      schedule_(schedule),
      table_(table),
      topology_(topology),
      backend_(backend),
      make_runner_(std::move(make_runner)),
      transport_(transport),
      first_error_(first_error) {
  for (const int index : topology.local_devices()) {
    contexts_.push_back(std::make_unique<DeviceContext>(index, topology.coordinates(index).pipeline));
  }
  const auto site = [this](int local) {
    return FailureSite{topology_.this_process(), contexts_[local]->index,
                       step_.load(std::memory_order_relaxed), contexts_[local]->progress.describe()};
  };
  threads_ = std::make_unique<DeviceThreads>(static_cast<int>(contexts_.size()), first_error, site);
  each_device([this](DeviceContext& context) { make_device(context); });
}

Engine::~Engine() {
  // Arenas belong to the threads that drive their devices. A failure is not reported again from here.
  try {
    threads_->each([this](int local) {
      DeviceContext& context = *contexts_[local];
      context.executor.reset();
      context.runner.reset();
      context.store.reset();
      context.collectives.reset();
      context.device.reset();
    });
  } catch (const std::exception&) {
    return;
  }
}

void furnish(DeviceContext& context, const EngineOptions& options, const schedule::Schedule& schedule,
             const model::ParameterTable& table, std::unique_ptr<device::Device> device,
             const RunnerFactory& make_runner) {
  context.chunks = place_chunks(schedule, context.pipeline_rank, options.stage_layers);
  context.holds_first_stage = std::ranges::any_of(context.chunks, &ChunkPlacement::first);
  context.holds_last_stage = std::ranges::any_of(context.chunks, &ChunkPlacement::last);
  context.device = std::move(device);
  context.store = std::make_unique<model::ParameterStore>(
      *context.device, table, options.model, options.compute, parameters_of(table, context.chunks), true);
  context.runner = make_runner(context);
}

void Engine::make_device(DeviceContext& context) {
  context.progress.doing("allocation of the parameters");
  context.endpoint = &transport_.endpoint(context.index);
  context.collectives = std::make_unique<comm::Collectives>(*context.endpoint, context.index,
                                                            topology_.pipeline_group(context.index));
  furnish(context, options_, schedule_, table_,
          backend_.make_device(
              {.index = context.index, .threads = options_.threads, .memory_limit = options_.memory_limit}),
          make_runner_);
  context.executor = std::make_unique<Executor>(*context.endpoint, *context.runner, context.device->stream(),
                                                context.progress, StopToken(first_error_));
  context.progress.doing(Progress::kIdle);
}

void Engine::each_device(const std::function<void(DeviceContext&)>& body) {
  threads_->each([this, &body](int local) { body(*contexts_[local]); });
}

std::vector<const Progress*> Engine::progress() const {
  std::vector<const Progress*> all;
  for (const auto& context : contexts_) all.push_back(&context->progress);
  return all;
}

}  // namespace slimpipe::runtime
