#include <algorithm>

#include "slimpipe/core/random.h"
#include "slimpipe/model/parameters.h"

namespace slimpipe::model {
namespace {

/// Elements a fused group's start is rounded up to: 64 bytes of bf16, so 128 of fp32. One layout in
/// elements serves every role.
constexpr std::int64_t kGroupElements = device::Arena::kAlignment / size_of(DType::kBF16);
/// Elements drawn on the host before they are uploaded: bounds host memory, whatever the parameter's size.
constexpr std::int64_t kInitPiece = std::int64_t{1} << 18;

struct Layout {
  std::vector<std::int64_t> offsets;  ///< one for each entry, in elements
  std::int64_t elements = 0;
};

Layout lay_out(const ParameterTable& table, const std::vector<std::size_t>& entries) {
  Layout layout;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    SLIMPIPE_CHECK(i == 0 || entries[i - 1] < entries[i], "entry {} follows {}", entries[i], entries[i - 1]);
    const ParameterSpec& spec = table.entries().at(entries[i]);
    if (spec.fused_with_previous) {
      SLIMPIPE_CHECK(i > 0 && entries[i - 1] + 1 == entries[i],
                     "{} is stored without the parameter before it", spec.name);
    } else {
      layout.elements = (layout.elements + kGroupElements - 1) / kGroupElements * kGroupElements;
    }
    layout.offsets.push_back(layout.elements);
    layout.elements += spec.size();
  }
  return layout;
}

/// The entry's part of a role's flat tensor; empty where the role is.
Tensor view_of(const Tensor& flat, std::int64_t offset, const ParameterSpec& spec) {
  if (flat.data() == nullptr) return {};
  const Tensor part = flat.rows(offset, offset + spec.size());
  return spec.shape.size() == 1 ? part : part.reshape({spec.shape[0], spec.shape[1]});
}

/// One matrix over the rows of `first` up to and including those of `last`, stored one behind the other.
Tensor fuse(const Tensor& first, const Tensor& last) {
  if (first.data() == nullptr) return {};
  const auto* begin = static_cast<const std::byte*>(first.data());
  const auto* end = static_cast<const std::byte*>(last.data()) + last.bytes();
  const std::int64_t columns = first.dim(1);
  return {first.data(), first.dtype(), {(end - begin) / (columns * size_of(first.dtype())), columns}};
}

void draw(const ParameterSpec& spec, std::uint64_t seed, RandomStream stream, std::int64_t begin,
          std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<std::uint64_t>(begin) + i;
    values[i] = spec.init == Init::kOnes
                    ? 1.0F
                    : static_cast<float>(spec.init_std * random_normal(seed, stream, element));
  }
}

}  // namespace

ParameterStore::ParameterStore(device::Device& device, const ParameterTable& table,
                               const config::ModelConfig& model, DType compute,
                               std::vector<std::size_t> entries, bool training)
    : device_(device), table_(table), model_(model), compute_(compute) {
  SLIMPIPE_CHECK(compute == DType::kF32 || compute == DType::kBF16, "compute type {}", name_of(compute));
  const Layout layout = lay_out(table, entries);
  using device::Scope;
  const Tensor weights = allocate(Scope::kWeights, compute, layout.elements, "weights");
  const Tensor masters = compute == DType::kF32 ? weights
                                                : allocate(Scope::kMasterWeights, DType::kF32,
                                                           layout.elements, "master weights");
  if (training) {
    gradients_ = allocate(Scope::kGradients, DType::kF32, layout.elements, "gradients");
    moments1_ = allocate(Scope::kOptimizer, DType::kF32, layout.elements, "first moments");
    moments2_ = allocate(Scope::kOptimizer, DType::kF32, layout.elements, "second moments");
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ParameterSpec& spec = table.entries()[entries[i]];
    const std::int64_t offset = layout.offsets[i];
    stored_.push_back({.index = entries[i],
                       .master = view_of(masters, offset, spec),
                       .compute = view_of(weights, offset, spec),
                       .gradient = view_of(gradients_, offset, spec),
                       .moment1 = view_of(moments1_, offset, spec),
                       .moment2 = view_of(moments2_, offset, spec)});
  }
  const bool holds_head = find(table.index_of("model.norm.weight")) != nullptr;
  if (training && model.tied_embeddings && holds_head) {
    tied_head_gradient_ =
        allocate(Scope::kGradients, DType::kF32, model.vocabulary * model.hidden, "gradient of the tied head")
            .reshape({model.vocabulary, model.hidden});
  }
}

Tensor ParameterStore::allocate(device::Scope scope, DType dtype, std::int64_t elements, const char* name) {
  buffers_.emplace_back(device_.arena(), scope, elements * size_of(dtype), name);
  return {buffers_.back().data(), dtype, {elements}};
}

void ParameterStore::initialise(std::uint64_t seed) {
  std::vector<float> values;
  for (const StoredParameter& parameter : stored_) {
    const ParameterSpec& spec = table_.entries()[parameter.index];
    const RandomStream stream{RandomStream::Use::kParameterInit, static_cast<std::uint32_t>(parameter.index)};
    const Tensor flat = parameter.master.reshape({spec.size()});
    for (std::int64_t begin = 0; begin < spec.size(); begin += kInitPiece) {
      const std::int64_t end = std::min(begin + kInitPiece, spec.size());
      values.resize(static_cast<std::size_t>(end - begin));
      draw(spec, seed, stream, begin, values);
      device_.upload(values.data(), flat.rows(begin, end));
    }
  }
  refresh_compute();
  if (moments1_.data() == nullptr) return;
  device_.operators().zero(device_.stream(), moments1_);
  device_.operators().zero(device_.stream(), moments2_);
}

void ParameterStore::refresh_compute() {
  if (compute_ == DType::kF32) return;
  for (const StoredParameter& parameter : stored_) {
    device_.operators().copy(device_.stream(), parameter.master, parameter.compute);
  }
}

void ParameterStore::zero_gradients() {
  if (gradients_.data() != nullptr) device_.operators().zero(device_.stream(), gradients_);
  if (tied_head_gradient_.data() != nullptr) device_.operators().zero(device_.stream(), tied_head_gradient_);
}

const StoredParameter* ParameterStore::find(std::size_t table_index) const {
  const auto found =
      std::lower_bound(stored_.begin(), stored_.end(), table_index,
                       [](const StoredParameter& p, std::size_t index) { return p.index < index; });
  return found != stored_.end() && found->index == table_index ? &*found : nullptr;
}

Tensor ParameterStore::tensor(std::string_view name, Kind kind) const {
  const StoredParameter* found = find(table_.index_of(name));
  if (found == nullptr) throw_error("device {} does not hold the parameter {}", device_.index(), name);
  return kind == Kind::kCompute ? found->compute : found->gradient;
}

LayerTensors ParameterStore::layer_tensors(int global_layer, Kind kind) const {
  const auto get = [&](const char* name) {
    return tensor(fmt::format("model.layers.{}.{}.weight", global_layer, name), kind);
  };
  return {.attention_norm = get("input_layernorm"),
          .qkv = fuse(get("self_attn.q_proj"), get("self_attn.v_proj")),
          .attention_output = get("self_attn.o_proj"),
          .ffn_norm = get("post_attention_layernorm"),
          .gate_up = fuse(get("mlp.gate_proj"), get("mlp.up_proj")),
          .down = get("mlp.down_proj")};
}

LayerTensors ParameterStore::layer_weights(int global_layer) const {
  return layer_tensors(global_layer, Kind::kCompute);
}
LayerTensors ParameterStore::layer_gradients(int global_layer) const {
  return layer_tensors(global_layer, Kind::kGradient);
}
Tensor ParameterStore::embedding_weight() const {
  return tensor("model.embed_tokens.weight", Kind::kCompute);
}
Tensor ParameterStore::embedding_gradient() const {
  return tensor("model.embed_tokens.weight", Kind::kGradient);
}
Tensor ParameterStore::final_norm_weight() const {
  return tensor("model.norm.weight", Kind::kCompute);
}
Tensor ParameterStore::final_norm_gradient() const {
  return tensor("model.norm.weight", Kind::kGradient);
}
Tensor ParameterStore::head_weight() const {
  return model_.tied_embeddings ? embedding_weight() : tensor("lm_head.weight", Kind::kCompute);
}
Tensor ParameterStore::head_gradient() const {
  return model_.tied_embeddings ? tied_head_gradient_ : tensor("lm_head.weight", Kind::kGradient);
}

}  // namespace slimpipe::model
