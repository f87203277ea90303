#include <algorithm>
#include <utility>

#include "slimpipe/core/random.h"
#include "slimpipe/core/split_float.h"
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

/// The entry's part of a flat tensor; empty where the tensor is.
Tensor flat_view_of(const Tensor& flat, std::int64_t offset, const ParameterSpec& spec) {
  if (flat.data() == nullptr) return {};
  return flat.rows(offset, offset + spec.size());
}

/// The same in the entry's shape.
Tensor view_of(const Tensor& flat, std::int64_t offset, const ParameterSpec& spec) {
  const Tensor part = flat_view_of(flat, offset, spec);
  if (part.data() == nullptr || spec.shape.size() == 1) return part;
  return part.reshape({spec.shape[0], spec.shape[1]});
}

Tensor gradient_shape(const ParameterSpec& spec) {
  const Tensor flat(nullptr, DType::kF32, {spec.size()});
  return spec.shape.size() == 1 ? flat : flat.reshape({spec.shape[0], spec.shape[1]});
}

/// One matrix over the rows of `first` up to and including those of `last`, stored one behind the other.
Tensor fuse(const Tensor& first, const Tensor& last) {
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

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kFinalNorm = "model.norm.weight";
constexpr std::string_view kHead = "lm_head.weight";

/// Gathers a layer's tensors; `get` gives one by its logical name.
template <typename Get>
LayerTensors layer_tensors(int global_layer, Get get) {
  const auto of = [&](const char* name) {
    return get(fmt::format("model.layers.{}.{}.weight", global_layer, name));
  };
  return {.attention_norm = of("input_layernorm"),
          .qkv = fuse(of("self_attn.q_proj"), of("self_attn.v_proj")),
          .attention_output = of("self_attn.o_proj"),
          .ffn_norm = of("post_attention_layernorm"),
          .gate_up = fuse(of("mlp.gate_proj"), of("mlp.up_proj")),
          .down = of("mlp.down_proj")};
}

}  // namespace

ParameterStore::ParameterStore(device::Device& device, const ParameterTable& table,
                               const config::ModelConfig& model, DType compute,
                               std::vector<std::size_t> entries, bool training)
    : device_(device), table_(table), model_(model), compute_(compute), training_(training) {
  SLIMPIPE_CHECK(compute == DType::kF32 || compute == DType::kBF16, "compute type {}", name_of(compute));
  Layout layout = lay_out(table, entries);
  using device::Scope;
  const Tensor weights = allocate(Scope::kWeights, compute, layout.elements, "weights");
  Tensor remainders;
  if (compute == DType::kBF16) {
    remainders = allocate(Scope::kMasterWeights, DType::kI16, layout.elements, "remainders of the weights");
  }
  if (training) {
    moments1_ = allocate(Scope::kOptimizer, DType::kF32, layout.elements, "first moments");
    moments2_ = allocate(Scope::kOptimizer, DType::kF32, layout.elements, "second moments");
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ParameterSpec& spec = table.entries()[entries[i]];
    const std::int64_t offset = layout.offsets[i];
    stored_.push_back({.index = entries[i],
                       .weight = view_of(weights, offset, spec),
                       .remainder = flat_view_of(remainders, offset, spec),
                       .gradient = {},
                       .moment1 = view_of(moments1_, offset, spec),
                       .moment2 = view_of(moments2_, offset, spec)});
  }
  offsets_ = std::move(layout.offsets);
  const auto part_of = [&](std::size_t i) {
    const ParameterSpec& spec = table.entries()[entries[i]];
    return std::pair(spec.part, spec.layer);
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i == 0 || part_of(i) != part_of(i - 1)) gradient_parts_.push_back({.first = i, .buffer = {}});
    gradient_parts_.back().last = i + 1;
  }
}

Tensor ParameterStore::allocate(device::Scope scope, DType dtype, std::int64_t elements, const char* name) {
  buffers_.emplace_back(device_.arena(), scope, Tensor(nullptr, dtype, {elements}), name);
  return {buffers_.back().data(), dtype, {elements}};
}

void ParameterStore::initialise(std::uint64_t seed) {
  std::vector<float> values;
  for (const StoredParameter& parameter : stored_) {
    const ParameterSpec& spec = table_.entries()[parameter.index];
    const RandomStream stream{RandomStream::Use::kParameterInit, static_cast<std::uint32_t>(parameter.index)};
    for (std::int64_t begin = 0; begin < spec.size(); begin += kInitPiece) {
      const std::int64_t end = std::min(begin + kInitPiece, spec.size());
      values.resize(static_cast<std::size_t>(end - begin));
      draw(spec, seed, stream, begin, values);
      write_master(parameter, begin, values);
    }
  }
  if (moments1_.data() == nullptr) return;
  device_.operators().zero(device_.stream(), moments1_);
  device_.operators().zero(device_.stream(), moments2_);
}

void ParameterStore::read_master(const StoredParameter& parameter, std::int64_t begin,
                                 std::span<float> values) {
  const std::int64_t end = begin + std::ssize(values);
  const Tensor weight = parameter.weight.reshape({parameter.weight.size()}).rows(begin, end);
  if (compute_ == DType::kF32) {
    device_.download(weight, values.data());
    return;
  }
  std::vector<BFloat16> weights(values.size());
  std::vector<std::int16_t> remainders(values.size());
  device_.download(weight, weights.data());
  device_.download(parameter.remainder.rows(begin, end), remainders.data());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = join({weights[i], remainders[i]});
}

void ParameterStore::write_master(const StoredParameter& parameter, std::int64_t begin,
                                  std::span<const float> values) {
  const std::int64_t end = begin + std::ssize(values);
  const Tensor weight = parameter.weight.reshape({parameter.weight.size()}).rows(begin, end);
  if (compute_ == DType::kF32) {
    device_.upload(values.data(), weight);
    return;
  }
  std::vector<BFloat16> weights(values.size());
  std::vector<std::int16_t> remainders(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const SplitFloat parts = split(values[i]);
    weights[i] = parts.weight;
    remainders[i] = parts.remainder;
  }
  device_.upload(weights.data(), weight);
  device_.upload(remainders.data(), parameter.remainder.rows(begin, end));
}

void ParameterStore::release_gradients() {
  for (StoredParameter& parameter : stored_) parameter.gradient = {};
  for (GradientPart& part : gradient_parts_) part.buffer.reset();
  tied_head_gradient_.reset();
}

Tensor ParameterStore::allocate_gradient(device::Buffer& buffer, std::int64_t elements, const char* name,
                                         std::span<const Tensor> shapes) {
  buffer = device::Buffer(device_.arena(), device::Scope::kGradients, elements * size_of(DType::kF32), name,
                          shapes);
  const Tensor flat(buffer.data(), DType::kF32, {elements});
  device_.operators().zero(device_.stream(), flat);
  return flat;
}

void ParameterStore::allocate_gradients(GradientPart& part) {
  const auto spec = [this](std::size_t i) -> const ParameterSpec& {
    return table_.entries()[stored_[i].index];
  };
  const std::int64_t begin = offsets_[part.first];
  const std::int64_t end = offsets_[part.last - 1] + spec(part.last - 1).size();
  std::vector<Tensor> shapes;
  for (std::size_t i = part.first; i < part.last; ++i) shapes.push_back(gradient_shape(spec(i)));
  const Tensor flat = allocate_gradient(part.buffer, end - begin, "gradients", shapes);
  for (std::size_t i = part.first; i < part.last; ++i) {
    stored_[i].gradient = view_of(flat, offsets_[i] - begin, spec(i));
  }
}

const StoredParameter* ParameterStore::find(std::size_t table_index) const {
  const auto found =
      std::lower_bound(stored_.begin(), stored_.end(), table_index,
                       [](const StoredParameter& p, std::size_t index) { return p.index < index; });
  return found != stored_.end() && found->index == table_index ? &*found : nullptr;
}

std::size_t ParameterStore::position_of(std::string_view name) const {
  const StoredParameter* found = find(table_.index_of(name));
  if (found == nullptr) throw_error("device {} does not hold the parameter {}", device_.index(), name);
  return static_cast<std::size_t>(found - stored_.data());
}

Tensor ParameterStore::weight(std::string_view name) const {
  return stored_[position_of(name)].weight;
}

Tensor ParameterStore::gradient(std::string_view name) {
  SLIMPIPE_CHECK(training_, "gradient of {} on device {}, which only evaluates", name, device_.index());
  const std::size_t position = position_of(name);
  if (stored_[position].gradient.data() == nullptr) {
    allocate_gradients(*std::ranges::find_if(
        gradient_parts_, [position](const GradientPart& part) { return position < part.last; }));
  }
  return stored_[position].gradient;
}

LayerTensors ParameterStore::layer_weights(int global_layer) const {
  return layer_tensors(global_layer, [this](std::string_view name) { return weight(name); });
}
LayerTensors ParameterStore::layer_gradients(int global_layer) {
  return layer_tensors(global_layer, [this](std::string_view name) { return gradient(name); });
}
Tensor ParameterStore::embedding_weight() const {
  return weight(kEmbedding);
}
Tensor ParameterStore::embedding_gradient() {
  return gradient(kEmbedding);
}
Tensor ParameterStore::final_norm_weight() const {
  return weight(kFinalNorm);
}
Tensor ParameterStore::final_norm_gradient() {
  return gradient(kFinalNorm);
}
Tensor ParameterStore::head_weight() const {
  return weight(model_.tied_embeddings ? kEmbedding : kHead);
}
Tensor ParameterStore::head_gradient() {
  if (!model_.tied_embeddings) return gradient(kHead);
  SLIMPIPE_CHECK(training_, "gradient of the tied head on device {}, which only evaluates", device_.index());
  (void)position_of(kFinalNorm);  // whoever holds the head holds it
  const Tensor shape(nullptr, DType::kF32, {model_.vocabulary, model_.hidden});
  const Tensor flat = tied_head_gradient_ ? Tensor(tied_head_gradient_.data(), DType::kF32, {shape.size()})
                                          : allocate_gradient(tied_head_gradient_, shape.size(),
                                                              "gradient of the tied head", {&shape, 1});
  return flat.reshape({model_.vocabulary, model_.hidden});
}

}  // namespace slimpipe::model
