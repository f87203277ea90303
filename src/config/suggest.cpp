#include "config/suggest.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>
#include <vector>

#include "config/field.h"

namespace slimpipe::config {
namespace {

constexpr std::size_t kLongestKey = 64;  // longer ones are no slips of the finger

using Keys = std::vector<std::string_view>;

Keys known_keys() {
  Keys keys;
  for (const Field& field : field_table()) keys.push_back(field.key);
  for (const std::string& section : section_names()) keys.push_back(section);
  return keys;
}

/// Still the same word to the eye: no more edits than a third of its letters.
bool is_near(std::string_view a, std::string_view b) {
  return edit_distance(a, b) * 3 <= std::max(a.size(), b.size());
}

/// Those of `candidates` at the least distance.
Keys nearest(std::string_view unknown, const Keys& candidates) {
  Keys best;
  std::size_t least = 2 * kLongestKey;
  for (const std::string_view key : candidates) {
    const std::size_t distance = edit_distance(unknown, key);
    if (distance > least) continue;
    if (distance < least) best.clear();
    least = distance;
    best.push_back(key);
  }
  return best;
}

/// The key of what other trainers call by this name or a misspelt form of it; empty where there is none.
std::string_view known_elsewhere(std::string_view leaf) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"num_layers", "model.layers"},
      {"n_layers", "model.layers"},
      {"num_hidden_layers", "model.layers"},
      {"hidden_size", "model.hidden"},
      {"dim", "model.hidden"},
      {"num_attention_heads", "model.heads"},
      {"n_heads", "model.heads"},
      {"num_query_groups", "model.kv_heads"},
      {"num_key_value_heads", "model.kv_heads"},
      {"n_kv_heads", "model.kv_heads"},
      {"head_dim", "model.head_size"},
      {"kv_channels", "model.head_size"},
      {"intermediate_size", "model.ffn"},
      {"ffn_hidden_size", "model.ffn"},
      {"vocab_size", "model.vocabulary"},
      {"tie_word_embeddings", "model.tied_embeddings"},
      {"rope_theta", "model.rope.theta"},
      {"rotary_base", "model.rope.theta"},
      {"seq_len", "data.sequence_length"},
      {"seq_length", "data.sequence_length"},
      {"dataset", "data.train"},
      {"pipeline_parallel_degree", "parallel.pipeline"},
      {"pipeline_model_parallel_size", "parallel.pipeline"},
      {"tensor_parallel_degree", "parallel.tensor"},
      {"tensor_model_parallel_size", "parallel.tensor"},
      {"train_iters", "training.steps"},
      {"batch_size", "training.microbatches"},
      {"global_batch_size", "training.microbatches"},
      {"gradient_accumulation_steps", "training.microbatches"},
      {"learning_rate", "training.lr"},
      {"max_norm", "training.clip"},
      {"clip_grad", "training.clip"},
      {"grad_clip", "training.clip"},
  };
  std::string_view best;
  std::size_t least = kLongestKey;
  for (const auto& [name, key] : kNames) {
    const std::size_t distance = edit_distance(name, leaf);
    if (distance >= least || !is_near(name, leaf)) continue;
    least = distance;
    best = key;
  }
  return best;
}

/// In the order in which people slip: the right name in the wrong section, a misspelt name in the right
/// section, both misspelt, another program's name, a misspelt name in the wrong section.
Keys probable_keys(std::string_view unknown) {
  const Keys known = known_keys();
  const std::string_view section = section_of(unknown);
  const std::string_view leaf = leaf_of(unknown);
  const auto matching = [&known](auto accepted) {
    Keys keys;
    std::copy_if(known.begin(), known.end(), std::back_inserter(keys), accepted);
    return keys;
  };
  Keys found = matching([&](auto key) { return leaf_of(key) == leaf && is_near(section_of(key), section); });
  if (found.empty()) found = matching([&](auto key) { return leaf_of(key) == leaf; });
  if (!found.empty()) return found;
  found = matching([&](auto key) { return section_of(key) == section && is_near(leaf_of(key), leaf); });
  if (found.empty())
    found =
        matching([&](auto key) { return is_near(section_of(key), section) && is_near(leaf_of(key), leaf); });
  if (!found.empty()) return nearest(unknown, found);
  if (const std::string_view key = known_elsewhere(leaf); !key.empty()) return {key};
  return nearest(unknown, matching([&](auto key) { return is_near(leaf_of(key), leaf); }));
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the dynamic programme: distances of a's prefixes of length i-2, i-1, i to every prefix of b.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, last[j] + 1, current[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, current);
  }
  return last[b.size()];
}

std::string suggestion_for_key(std::string_view unknown) {
  if (unknown.size() > kLongestKey) return "";
  const Keys best = probable_keys(unknown);
  if (best.empty()) return "";
  return fmt::format("; did you mean {}?", fmt::join(best, " or "));
}

}  // namespace slimpipe::config
