#pragma once
// Sizes of known models, by name.

#include <string_view>
#include <vector>

#include "slimpipe/config/run_config.h"

namespace slimpipe::config {

struct Preset {
  std::string_view name;
  std::string_view note;  ///< what it is, for the reference
  ModelConfig model;
};

[[nodiscard]] const std::vector<Preset>& presets();
/// nullptr where there is none of that name.
[[nodiscard]] const Preset* find_preset(std::string_view name);

/// Weights of a model whose sizes are all set, embeddings and norms included.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& model);

}  // namespace slimpipe::config
