#pragma once
// Combinations of values that cannot run, each value by itself being good.

#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/config/run_config.h"

namespace slimpipe::config {

struct Rule {
  /// The fields it relates. The rule is not asked while one of them is in error.
  std::vector<std::string_view> keys;
  /// What is wrong, a sentence each with the numbers; empty where all is well. Unset fields pass.
  std::vector<std::string> (*violations)(const RunConfig&);
};

/// To be applied after derive_sizes().
[[nodiscard]] const std::vector<Rule>& rules();

}  // namespace slimpipe::config
