#include "config/presets.h"

#include <algorithm>

#include "slimpipe/config/load.h"

namespace slimpipe::config {
namespace {

constexpr std::int64_t kByteVocabulary = 257;  // 256 bytes and the end of a document
constexpr std::int64_t kLlama2Vocabulary = 32'000;
constexpr std::int64_t kLlama3Vocabulary = 128'256;

struct Sizes {
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocabulary;
};

Preset make(std::string_view name, std::string_view note, const Sizes& sizes) {
  ModelConfig model;
  model.preset = name;
  model.layers = sizes.layers;
  model.hidden = sizes.hidden;
  model.heads = sizes.heads;
  model.kv_heads = sizes.kv_heads;
  model.head_size = sizes.hidden / sizes.heads;
  model.ffn = sizes.ffn;
  model.vocabulary = sizes.vocabulary;
  return {name, note, model};
}

Preset with_theta(Preset preset, double theta) {
  preset.model.rope.theta = theta;
  return preset;
}

Preset with_tied_embeddings(Preset preset) {
  preset.model.tied_embeddings = true;
  return preset;
}

// The Llama 149B of arXiv 2504.14519 is not a published model. These sizes continue the family's
// proportions (head size 128, 8 KV heads, ffn 8/3 of hidden) to 148.9e9 weights, with 96 layers so that
// pipelines of 4, 8, 12, 16 and 32 divide them.
constexpr Sizes kLlama149b = {96, 12'288, 96, 8, 32'768, 64'000};

std::vector<Preset> all_presets() {
  return {
      make("tiny", "3.3 million weights; tests and the quickstart; byte vocabulary",
           {4, 256, 4, 2, 768, kByteVocabulary}),
      make("small", "25 million weights; an evening on a CPU; byte vocabulary",
           {8, 512, 8, 4, 1536, kByteVocabulary}),
      with_tied_embeddings(make("llama-100m", "110 million weights, tied embeddings",
                                {12, 768, 12, 12, 2048, kLlama2Vocabulary})),
      make("llama-7b", "Llama 2 7B", {32, 4096, 32, 32, 11'008, kLlama2Vocabulary}),
      make("llama-13b", "Llama 2 13B", {40, 5120, 40, 40, 13'824, kLlama2Vocabulary}),
      make("llama-70b", "Llama 2 70B", {80, 8192, 64, 8, 28'672, kLlama2Vocabulary}),
      make("llama-149b", "149 billion weights in the proportions of the family", kLlama149b),
      with_theta(make("llama-3-8b", "Llama 3 8B", {32, 4096, 32, 8, 14'336, kLlama3Vocabulary}), 500'000),
      with_theta(make("llama-3-70b", "Llama 3 70B", {80, 8192, 64, 8, 28'672, kLlama3Vocabulary}), 500'000),
  };
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = all_presets();
  return all;
}

const Preset* find_preset(std::string_view name) {
  const std::vector<Preset>& all = presets();
  const auto at = std::find_if(all.begin(), all.end(), [name](const Preset& p) { return p.name == name; });
  return at == all.end() ? nullptr : &*at;
}

std::int64_t parameter_count(const ModelConfig& model) {
  const std::int64_t attention = 2 * model.hidden * model.head_size * (model.heads + model.kv_heads);
  const std::int64_t feed_forward = 3 * model.hidden * model.ffn;
  const std::int64_t norms = 2 * model.hidden;
  const std::int64_t embeddings = (model.tied_embeddings ? 1 : 2) * model.vocabulary * model.hidden;
  return model.layers * (attention + feed_forward + norms) + embeddings + model.hidden;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

}  // namespace slimpipe::config
