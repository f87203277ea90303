#pragma once
// Inverse frequencies of rotary position embeddings. With f(i) = theta^(-2i/D) for the D/2 pairs i of a head,
// and turns(i) = original_context · f(i) / 2π:
//
//   plain   f(i): arXiv 2104.09864
//   linear  f(i) / factor: position interpolation, arXiv 2306.15595
//   ntk     f(i) with the base theta · factor^(D/(D-2)), so that the fastest frequency stays and the slowest
//           is divided by factor: "NTK-aware" interpolation, arXiv 2309.00071 section 3.1
//   yarn    (1 - r(i)) · f(i) + r(i) · f(i) / factor, where r rises from 0 to 1 linearly in i, from the floor
//           of where turns(i) is beta_fast (at least 0) to the ceiling of where it is beta_slow (at most
//           D - 1); cos and sin times 0.1 · ln(factor) + 1: arXiv 2309.00071, whose own ramp is linear in
//           turns(i); this one, in i, is that of its authors' program
//   llama3  f(i) where turns(i) > high_frequency_factor, f(i) / factor where turns(i) < low_frequency_factor,
//           between them mixed linearly in turns(i): Llama 3.1's own program

#include <cstdint>
#include <vector>

#include "slimpipe/config/run_config.h"

namespace slimpipe::model {

struct RopeFrequencies {
  std::vector<double> inverse;  ///< [D/2] radians per position
  double magnitude = 1;         ///< multiplies cos and sin (YaRN's attention factor; 1 otherwise)
};

/// Throws Error where `head_size` is odd or not above 0, with ntk also where it is 2, which leaves no slowest
/// frequency apart from the fastest.
[[nodiscard]] RopeFrequencies rope_frequencies(const config::RopeConfig& rope, std::int64_t head_size);

}  // namespace slimpipe::model
