#pragma once
// The real step runner: the layers of one device's model chunks, over a backend.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/execution_context.h"
#include "slimpipe/model/decoder_layer.h"
#include "slimpipe/model/output_head.h"
#include "slimpipe/model/parallel_context.h"
#include "slimpipe/model/parameters.h"
#include "slimpipe/model/rope.h"
#include "slimpipe/runtime/placement.h"
#include "slimpipe/runtime/step_runner.h"

namespace slimpipe::runtime {

struct BlockRows;
struct LayerKv;

class StageRunner : public StepRunner {
 public:
  StageRunner(device::Device& device, model::ParameterStore& store, const config::ModelConfig& model,
              DType compute, model::Recompute recompute, std::int64_t sequence_length,
              std::vector<ChunkPlacement> chunks);
  ~StageRunner() override;

  /// Uploads the tokens of the next execution and zeroes its loss slots.
  void begin(const Program& program, const StepTokens& tokens) override;
  void run(const Step& step, device::Stream& stream) override;
  [[nodiscard]] std::span<std::byte> message(const Step& step, const Transfer& transfer) override;
  void message_done(const Step& step, const Transfer& transfer) override;
  [[nodiscard]] std::vector<double> losses() override;
  void check_nothing_left() const override;

 private:
  using Context = device::ExecutionContext;
  struct SliceState;
  struct MicrobatchState;
  struct Chunk;
  struct ExchangeState;

  void allocate_rope_tables();
  void upload_tokens(const std::vector<std::span<const std::int32_t>>& rows, device::Buffer& buffer,
                     const char* name);
  [[nodiscard]] Tensor token_row(const device::Buffer& buffer, int microbatch, std::int64_t first,
                                 std::int64_t count) const;
  [[nodiscard]] model::SliceRef slice_ref(const Context& context, const schedule::Action& action);
  [[nodiscard]] Tensor hidden_tensor(void* data) const;  ///< [T, H] compute
  [[nodiscard]] SliceState& state(const schedule::Action& action);
  [[nodiscard]] std::span<std::byte> tied_message(const Step& step, const Transfer& transfer);

  /// Hidden states become the saved input of the chunk's first layer, without a copy.
  void take_input(SliceState& slice, device::Buffer hidden);
  void take_activation(const Step& step, const Chunk& chunk);
  void take_gradient(const Step& step, const Chunk& chunk);
  /// The slice's state in the chunk of this device that holds `stage`.
  [[nodiscard]] SliceState& state_at(int stage, const schedule::Action& action);
  void embed(const Context& context, const Step& step);
  void pre_attention(const Context& context, const Step& step, Chunk& chunk);
  void attention(const Context& context, const Step& step, Chunk& chunk);
  void post_attention(const Context& context, const Step& step, Chunk& chunk);
  void loss(const Context& context, const Step& step, Chunk& chunk);
  void post_attention_backward(const Context& context, const Step& step, Chunk& chunk);
  void attention_backward(const Context& context, const Step& step, Chunk& chunk);
  void pre_attention_backward(const Context& context, const Step& step, Chunk& chunk);
  void backward_weight(const Context& context, const Step& step, Chunk& chunk);
  void embed_backward(const Context& context, const Step& step);
  void release(const Step& step, Chunk& chunk);
  void combine_tied_gradients(const Context& context);

  void begin_exchange(const Program& program);
  void run_exchange(const Context& context, const Step& step);
  [[nodiscard]] LayerKv& layer_kv(const Step& step);
  /// Of the slice's blocks, what is not given to helpers.
  [[nodiscard]] std::vector<BlockRows> kept_rows(std::span<const device::KvBlock> blocks) const;
  void gather_keys(const Context& context, const Step& step);
  void gather_query(const Context& context, const Step& step);
  void help_attention(const Context& context, const Step& step);
  void merge_attention(const Context& context, const Step& step);
  void merge_gradients(const Context& context, const Step& step);
  [[nodiscard]] std::span<std::byte> exchange_message(const Step& step, const Transfer& transfer);
  [[nodiscard]] std::span<std::byte> query_to_send(const Step& step, const Transfer& transfer);
  void exchange_message_done(const Step& step);
  [[nodiscard]] bool holds_first_stage() const;

  device::Device& device_;
  model::ParameterStore& store_;
  config::ModelConfig model_;
  DType compute_;
  std::int64_t sequence_length_;
  std::int64_t slice_tokens_ = 0;
  model::ParallelContext parallel_;
  const Program* program_ = nullptr;
  float gradient_scale_ = 0;
  std::vector<std::int64_t> valid_tokens_;  ///< [m]

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
  std::unique_ptr<ExchangeState> exchange_;
};

}  // namespace slimpipe::runtime
