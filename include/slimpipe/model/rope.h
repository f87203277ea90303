#pragma once
// Inverse frequencies of rotary position embeddings: plain, linear, NTK-aware, YaRN (arXiv 2309.00071)
// and Llama 3's. Same results as Hugging Face transformers' rope_utils for the same settings.

#include <vector>

#include "slimpipe/config/run_config.h"

namespace slimpipe::model {

struct RopeFrequencies {
  std::vector<double> inverse;  ///< [D/2] radians per position
  double magnitude = 1;         ///< multiplies cos and sin (YaRN's attention factor; 1 otherwise)
};

[[nodiscard]] RopeFrequencies rope_frequencies(const config::RopeConfig& rope, std::int64_t head_size);

}  // namespace slimpipe::model
