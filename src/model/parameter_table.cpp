#include <cmath>

#include "slimpipe/model/parameters.h"

namespace slimpipe::model {
namespace {

void check_sizes(const config::ModelConfig& m) {
  SLIMPIPE_CHECK(m.layers > 0 && m.hidden > 0 && m.ffn > 0 && m.vocabulary > 0,
                 "layers {}, hidden {}, ffn {}, vocabulary {} must all be positive", m.layers, m.hidden,
                 m.ffn, m.vocabulary);
  SLIMPIPE_CHECK(m.heads > 0 && m.kv_heads > 0 && m.heads % m.kv_heads == 0,
                 "{} heads must be a multiple of {} KV heads", m.heads, m.kv_heads);
  SLIMPIPE_CHECK(m.head_size > 0 && m.head_size % 2 == 0,
                 "head size {} must be even: rotary embedding pairs its elements", m.head_size);
}

ParameterSpec norm(std::string name, std::int64_t hidden, Part part, int layer = -1) {
  return {.name = std::move(name), .shape = {hidden}, .part = part, .layer = layer, .init = Init::kOnes};
}

ParameterSpec matrix(std::string name, std::int64_t out, std::int64_t in, Part part, ShardRule shard,
                     double std, int layer = -1) {
  return {.name = std::move(name),
          .shape = {out, in},
          .part = part,
          .layer = layer,
          .init = Init::kNormal,
          .init_std = std,
          .decay = true,
          .shard = shard};
}

ParameterSpec fused(ParameterSpec spec) {
  spec.fused_with_previous = true;
  return spec;
}

void append_layer(std::vector<ParameterSpec>& entries, const config::ModelConfig& m, int layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::int64_t q_features = m.heads * m.head_size;
  const std::int64_t kv_features = m.kv_heads * m.head_size;
  // The two matrices of each layer that write to the residual stream start smaller, so that its variance
  // does not grow with depth.
  const double residual_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto linear = [&](const char* name, std::int64_t out, std::int64_t in, ShardRule shard, double std) {
    return matrix(prefix + name, out, in, Part::kLayer, shard, std, layer);
  };
  constexpr auto kOut = ShardRule::kOutputFeatures;
  constexpr auto kIn = ShardRule::kInputFeatures;
  entries.push_back(norm(prefix + "input_layernorm.weight", m.hidden, Part::kLayer, layer));
  entries.push_back(linear("self_attn.q_proj.weight", q_features, m.hidden, kOut, m.init_std));
  entries.push_back(fused(linear("self_attn.k_proj.weight", kv_features, m.hidden, kOut, m.init_std)));
  entries.push_back(fused(linear("self_attn.v_proj.weight", kv_features, m.hidden, kOut, m.init_std)));
  entries.push_back(linear("self_attn.o_proj.weight", m.hidden, q_features, kIn, residual_std));
  entries.push_back(norm(prefix + "post_attention_layernorm.weight", m.hidden, Part::kLayer, layer));
  entries.push_back(linear("mlp.gate_proj.weight", m.ffn, m.hidden, kOut, m.init_std));
  entries.push_back(fused(linear("mlp.up_proj.weight", m.ffn, m.hidden, kOut, m.init_std)));
  entries.push_back(linear("mlp.down_proj.weight", m.hidden, m.ffn, kIn, residual_std));
}

}  // namespace

std::int64_t ParameterSpec::size() const {
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) n *= dim;
  return n;
}

ParameterTable::ParameterTable(const config::ModelConfig& model) {
  check_sizes(model);
  entries_.push_back(matrix("model.embed_tokens.weight", model.vocabulary, model.hidden, Part::kEmbedding,
                            ShardRule::kVocabulary, model.init_std));
  for (int layer = 0; layer < model.layers; ++layer) append_layer(entries_, model, layer);
  entries_.push_back(norm("model.norm.weight", model.hidden, Part::kFinalNorm));
  if (!model.tied_embeddings) {
    entries_.push_back(matrix("lm_head.weight", model.vocabulary, model.hidden, Part::kHead,
                              ShardRule::kVocabulary, model.init_std));
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

std::int64_t ParameterTable::total_size() const {
  std::int64_t total = 0;
  for (const ParameterSpec& spec : entries_) total += spec.size();
  return total;
}

std::size_t ParameterTable::index_of(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) throw_error("the model has no parameter named {}", name);
  return found->second;
}

std::vector<std::size_t> ParameterTable::stage_entries(int first_layer, int layer_count, bool first_stage,
                                                       bool last_stage) const {
  const bool tied = !by_name_.contains("lm_head.weight");
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const ParameterSpec& spec = entries_[i];
    const bool wanted = [&] {
      switch (spec.part) {
        case Part::kEmbedding:
          return first_stage || (last_stage && tied);
        case Part::kLayer:
          return spec.layer >= first_layer && spec.layer < first_layer + layer_count;
        case Part::kFinalNorm:
        case Part::kHead:
          return last_stage;
      }
      return false;
    }();
    if (wanted) indices.push_back(i);
  }
  return indices;
}

std::int64_t multiplying_parameters(const config::ModelConfig& model) {
  // A tied table multiplies too, as the output layer, so only an untied embedding is left out.
  const std::int64_t lookup_only = model.tied_embeddings ? 0 : model.vocabulary * model.hidden;
  return ParameterTable(model).total_size() - lookup_only;
}

double flops_per_token(const config::ModelConfig& model, std::int64_t sequence_length, bool full_attention) {
  // Scores and weighted sum, 2 FLOPs a multiply-add each, three times over (forward, two gradients): 12.
  const double per_pair = full_attention ? 12 : 6;
  const double attention = per_pair * static_cast<double>(model.layers) * static_cast<double>(model.heads) *
                           static_cast<double>(model.head_size) * static_cast<double>(sequence_length);
  return 6 * static_cast<double>(multiplying_parameters(model)) + attention;
}

}  // namespace slimpipe::model
