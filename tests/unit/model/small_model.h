#pragma once
// A whole small model on one device, driven slice by slice as a schedule would: forwards 0..n-1, then
// backwards n-1..0, every buffer freed at its last use.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "slimpipe/model/decoder_layer.h"
#include "slimpipe/model/output_head.h"
#include "slimpipe/model/parameters.h"
#include "slimpipe/model/rope.h"

namespace slimpipe::test {

using Gradients = std::map<std::string, std::vector<float>>;

/// Sizes of which none divides another: heads · head size is not the hidden size.
inline config::ModelConfig odd_model(std::int64_t heads, std::int64_t kv_heads) {
  return {.layers = 2,
          .hidden = 15,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_size = 8,
          .ffn = 11,
          .vocabulary = 23,
          .init_std = 0.3};
}

struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  std::vector<std::int64_t> document_starts;
};

/// Tokens are drawn by position; every fifth target is ignored.
Sample random_sample(std::int64_t length, std::int64_t vocabulary);

class SmallModel {
 public:
  SmallModel(device::Device& device, const config::ModelConfig& model, DType compute, bool training = true,
             std::uint64_t seed = 7, model::Recompute recompute = model::Recompute::kNone);

  /// Mean loss over the valid targets.
  double evaluate(const Sample& sample, int slices = 1);
  /// The same, and the gradients in the store's gradient buffers, which are zeroed first.
  double train(const Sample& sample, int slices = 1);
  /// As train, but adds to the gradients there are.
  double accumulate(const Sample& sample, int slices = 1);
  /// By name; a tied embedding's two gradients are summed.
  Gradients gradients();

  device::Device& device;
  config::ModelConfig config;
  model::ParameterTable table;
  model::ParameterStore store;
  /// Live bytes of saved activations when the last forward was done.
  std::int64_t saved_bytes = 0;

 private:
  struct SliceState {
    model::SliceRef ref;
    Tensor tokens;
    Tensor targets;
    Tensor hidden;                         ///< output of the last layer
    std::vector<model::LayerSaved> saved;  ///< one a layer
    std::vector<device::Buffer> buffers;
  };
  /// dK, dV of one layer, a block each slice.
  struct KvGradients {
    std::vector<device::KvGradientBlock> blocks;
    std::vector<device::Buffer> buffers;
  };
  double run(const Sample& sample, int slices, bool backward_too);
  Tensor tensor(std::vector<device::Buffer>& owner, device::Scope scope, DType dtype,
                std::initializer_list<std::int64_t> dims);
  SliceState make_slice(const Sample& sample, int slice, std::int64_t tokens);
  void forward(std::vector<SliceState>& slices, std::size_t i);
  std::vector<KvGradients> allocate_kv_gradients(const std::vector<SliceState>& slices);
  void backward(std::vector<SliceState>& slices, std::size_t i, Tensor d_hidden,
                std::vector<KvGradients>& kv_gradients);

  DType compute_;
  model::ParallelContext parallel_;
  std::vector<model::DecoderLayer> layers_;
  std::unique_ptr<model::OutputHead> head_;
};

}  // namespace slimpipe::test
