#pragma once
// The real step runner: the layers of one device's model chunks, over a backend.

#include <memory>
#include <span>
#include <vector>

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/backend.h"
#include "slimpipe/model/decoder_layer.h"
#include "slimpipe/model/output_head.h"
#include "slimpipe/model/parallel_context.h"
#include "slimpipe/model/parameters.h"
#include "slimpipe/model/rope.h"
#include "slimpipe/runtime/step_runner.h"

namespace slimpipe::runtime {

/// Which layers a chunk of a device holds.
struct ChunkPlacement {
  int stage = 0;
  int stages = 1;
  int first_layer = 0;
  int layers = 1;
  [[nodiscard]] bool first() const { return stage == 0; }
  [[nodiscard]] bool last() const { return stage == stages - 1; }
};

/// The chunks of a pipeline rank, in chunk order; layers are shared evenly by the stages.
[[nodiscard]] std::vector<ChunkPlacement> place_chunks(const schedule::Schedule& schedule, int rank,
                                                       int layers);
/// Table indices of the parameters that the chunks need, ascending, without repetition.
[[nodiscard]] std::vector<std::size_t> parameters_of(const model::ParameterTable& table,
                                                     const std::vector<ChunkPlacement>& chunks);

/// Host tokens of one step. Spans are empty where the device needs no inputs (not the first stage) or no
/// targets (not the last).
struct StepTokens {
  std::vector<std::span<const std::int32_t>> inputs;   ///< [m] of [S]
  std::vector<std::span<const std::int32_t>> targets;  ///< [m] of [S]; negative: ignored
  double gradient_scale = 0;                           ///< 1 / valid targets of the global batch
};

class StageRunner : public StepRunner {
 public:
  StageRunner(device::Device& device, model::ParameterStore& store, const config::ModelConfig& model,
              DType compute, model::Recompute recompute, std::int64_t sequence_length,
              std::vector<ChunkPlacement> chunks);
  ~StageRunner() override;

  /// Uploads the tokens of the next execution and zeroes its loss slots.
  void begin(const Program& program, const StepTokens& tokens);
  /// Losses summed over valid targets, one a (microbatch, slice) in that order; reads back from the device.
  /// Zeros where this device does not hold the last stage.
  [[nodiscard]] std::vector<double> losses();
  /// Throws Error naming what is still allocated in the scopes that live within a step.
  void check_nothing_left() const;
  [[nodiscard]] const std::vector<ChunkPlacement>& chunks() const { return placements_; }

  void run(const Step& step) override;
  [[nodiscard]] std::span<std::byte> message(const Step& step, const Transfer& transfer) override;
  void message_done(const Step& step, const Transfer& transfer) override;

 private:
  struct SliceState;
  struct MicrobatchState;
  struct Chunk;

  void allocate_rope_tables();
  void upload_tokens(const std::vector<std::span<const std::int32_t>>& rows, device::Buffer& buffer,
                     const char* name);
  [[nodiscard]] Tensor token_row(const device::Buffer& buffer, int microbatch, std::int64_t first,
                                 std::int64_t count) const;
  [[nodiscard]] model::SliceRef slice_ref(const schedule::Action& action);
  [[nodiscard]] Tensor hidden_tensor(void* data) const;  ///< [T, H] compute
  [[nodiscard]] SliceState& state(const schedule::Action& action);
  [[nodiscard]] std::span<std::byte> tied_message(const Step& step, const Transfer& transfer);

  void embed(const Step& step);
  void pre_attention(const Step& step, Chunk& chunk);
  void attention(const Step& step, Chunk& chunk);
  void post_attention(const Step& step, Chunk& chunk);
  void loss(const Step& step, Chunk& chunk);
  void post_attention_backward(const Step& step, Chunk& chunk);
  void attention_backward(const Step& step, Chunk& chunk);
  void pre_attention_backward(const Step& step, Chunk& chunk);
  void backward_weight(const Step& step, Chunk& chunk);
  void embed_backward(const Step& step);
  void release(const Step& step, Chunk& chunk);
  void combine_tied_gradients();
  [[nodiscard]] bool holds_first_stage() const;

  device::Device& device_;
  model::ParameterStore& store_;
  config::ModelConfig model_;
  DType compute_;
  std::int64_t sequence_length_;
  std::int64_t hidden_bytes_ = 0;  ///< of one slice
  std::int64_t slice_tokens_ = 0;
  model::ParallelContext parallel_;
  const Program* program_ = nullptr;
  float gradient_scale_ = 0;

  std::vector<ChunkPlacement> placements_;
  std::vector<Chunk> chunks_;
  device::Buffer rope_buffer_;  ///< inverse frequencies, cos and sin of one slice
  Tensor inverse_frequency_;
  double rope_magnitude_ = 1;
  Tensor rope_cos_;
  Tensor rope_sin_;
  int rope_slice_ = -1;     ///< the slice the tables hold, -1: none
  device::Buffer inputs_;   ///< [m, S] int32
  device::Buffer targets_;  ///< [m, S] int32
  device::Buffer losses_;   ///< [m·n] fp64
  device::Buffer tied_received_;
};

}  // namespace slimpipe::runtime
