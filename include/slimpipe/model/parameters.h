#pragma once
// The one list of a model's parameters, and their storage on a device.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slimpipe/config/run_config.h"
#include "slimpipe/device/backend.h"

namespace slimpipe::model {

/// The part of the model that uses a parameter; decides which stage holds it.
enum class Part : std::uint8_t { kEmbedding, kLayer, kFinalNorm, kHead };

/// How tensor parallelism will cut a parameter.
enum class ShardRule : std::uint8_t { kReplicated, kOutputFeatures, kInputFeatures, kVocabulary };

enum class Init : std::uint8_t { kOnes, kNormal };

struct ParameterSpec {
  std::string name;                 ///< logical name, the same as Hugging Face's for Llama
  std::vector<std::int64_t> shape;  ///< [out, in] or [n]
  Part part = Part::kLayer;
  int layer = -1;  ///< global layer index, -1 outside layers
  Init init = Init::kNormal;
  double init_std = 0;  ///< of kNormal; drawn by GLOBAL element index, so any layout draws the same
  bool decay = false;   ///< weight decay: matrices only
  ShardRule shard = ShardRule::kReplicated;
  /// Stored directly behind the previous parameter, so that one GEMM covers both (q,k,v; gate,up).
  bool fused_with_previous = false;
  [[nodiscard]] std::int64_t size() const;
};

/// Order: embedding, layers (attention norm, q, k, v, o, feed-forward norm, gate, up, down), final norm,
/// head (absent with tied embeddings). The gradient norm sums in this order.
class ParameterTable {
 public:
  explicit ParameterTable(const config::ModelConfig& model);
  [[nodiscard]] const std::vector<ParameterSpec>& entries() const { return entries_; }
  [[nodiscard]] std::int64_t total_size() const;
  /// Index of a logical name; throws Error where there is none.
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  /// Entries that a stage holding layers [first, first + count) needs; `first_stage` adds the embedding,
  /// `last_stage` final norm and head (with tied embeddings: the embedding's table).
  [[nodiscard]] std::vector<std::size_t> stage_entries(int first_layer, int layer_count, bool first_stage,
                                                       bool last_stage) const;

 private:
  std::vector<ParameterSpec> entries_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// Multiplying parameters for the FLOP count: all but the input embedding.
[[nodiscard]] std::int64_t multiplying_parameters(const config::ModelConfig& model);
/// 6 · multiplying parameters + 6 · L · N · D · S, causal attention counted by half; `full_attention`
/// counts it whole (12 · L · N · D · S).
[[nodiscard]] double flops_per_token(const config::ModelConfig& model, std::int64_t sequence_length,
                                     bool full_attention);

/// One parameter on a device. Tensors are contiguous and, but for the remainder, of the spec's shape.
struct StoredParameter {
  std::size_t index = 0;  ///< in the table
  Tensor weight;          ///< compute type; in fp32 the value itself, in bf16 its nearest bf16 value
  Tensor remainder;       ///< int16 [n], with the weight the fp32 value (core/split_float.h); empty in fp32
  Tensor gradient;        ///< fp32; empty until the step asks for it
  Tensor moment1;         ///< fp32
  Tensor moment2;         ///< fp32
};

/// Weights or gradients of one decoder layer. H hidden, N heads, K KV heads, D head size, F FFN size.
struct LayerTensors {
  Tensor attention_norm;    ///< [H]
  Tensor qkv;               ///< [(N + 2K)·D, H]: rows of q, then k, then v
  Tensor attention_output;  ///< [H, N·D]
  Tensor ffn_norm;          ///< [H]
  Tensor gate_up;           ///< [2F, H]: rows of gate, then up
  Tensor down;              ///< [H, F]
};

/// Storage of the parameters of a device's stages.
///
/// Gradients exist from the first backward that adds to them to the end of the step: those of one part (the
/// embedding, one layer, the final norm, the head) share a buffer that is allocated and zeroed when a
/// function below first asks for one of them. So the first backward's activations make room for them layer by
/// layer, and validation runs without them.
class ParameterStore {
 public:
  /// `entries`: table indices, ascending, without repetition. `training` false: no moments, and asking for a
  /// gradient is an error.
  ParameterStore(device::Device& device, const ParameterTable& table, const config::ModelConfig& model,
                 DType compute, std::vector<std::size_t> entries, bool training);

  /// Draws the initial values; moments become 0.
  void initialise(std::uint64_t seed);
  /// The fp32 values of elements [begin, begin + values.size()) of a parameter, to and from the host.
  void read_master(const StoredParameter& parameter, std::int64_t begin, std::span<float> values);
  void write_master(const StoredParameter& parameter, std::int64_t begin, std::span<const float> values);
  /// Forgets all gradients and frees their memory.
  void release_gradients();

  [[nodiscard]] const std::vector<StoredParameter>& parameters() const { return stored_; }
  /// nullptr where this device does not hold the entry.
  [[nodiscard]] const StoredParameter* find(std::size_t table_index) const;
  [[nodiscard]] LayerTensors layer_weights(int global_layer) const;
  [[nodiscard]] LayerTensors layer_gradients(int global_layer);
  [[nodiscard]] Tensor embedding_weight() const;   ///< [V, H] compute
  [[nodiscard]] Tensor embedding_gradient();       ///< [V, H] fp32
  [[nodiscard]] Tensor final_norm_weight() const;  ///< [H] compute
  [[nodiscard]] Tensor final_norm_gradient();      ///< [H] fp32
  [[nodiscard]] Tensor head_weight() const;        ///< [V, H] compute; tied: the embedding's
  /// [V, H] fp32. With tied embeddings a buffer of its own, even on one device, so that both uses add up
  /// apart and are summed once at the end of the step, whatever the pipeline size.
  [[nodiscard]] Tensor head_gradient();

 private:
  /// stored_[first, last), whose gradients share a buffer.
  struct GradientPart {
    std::size_t first = 0;
    std::size_t last = 0;
    device::Buffer buffer;  ///< empty until the step asks for it
  };
  /// One flat tensor in a buffer of its own.
  [[nodiscard]] Tensor allocate(device::Scope scope, DType dtype, std::int64_t elements, const char* name);
  /// One flat, zeroed tensor of fp32; `shapes` are of those it consists of.
  [[nodiscard]] Tensor allocate_gradient(device::Buffer& buffer, std::int64_t elements, const char* name,
                                         std::span<const Tensor> shapes);
  /// Index into stored_ by name; throws Error where this device does not hold it.
  [[nodiscard]] std::size_t position_of(std::string_view name) const;
  [[nodiscard]] Tensor weight(std::string_view name) const;  ///< in the compute type
  [[nodiscard]] Tensor gradient(std::string_view name);
  void allocate_gradients(GradientPart& part);

  device::Device& device_;
  const ParameterTable& table_;
  config::ModelConfig model_;
  DType compute_;
  std::vector<StoredParameter> stored_;
  std::vector<std::int64_t> offsets_;  ///< of stored_, in elements, in every flat tensor
  std::vector<device::Buffer> buffers_;
  Tensor moments1_;  ///< all of them, flat, padding between groups included
  Tensor moments2_;
  bool training_;
  std::vector<GradientPart> gradient_parts_;
  device::Buffer tied_head_gradient_;
};

}  // namespace slimpipe::model
