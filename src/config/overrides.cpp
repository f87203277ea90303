#include "config/overrides.h"

#include <fmt/core.h>

#include "config/source_text.h"

namespace slimpipe::config {

Source read_overrides(const std::vector<std::string>& overrides) {
  Source source;
  for (const std::string& text : overrides) {
    const std::string where = "--set " + printable(text);
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      source.problems.push_back({kOverrideRank, where + ": expected KEY=VALUE, such as training.steps=100"});
      continue;
    }
    source.entries.push_back({.key = text.substr(0, equals),
                              .form = Form::kPlain,
                              .text = text.substr(equals + 1),
                              .where = where,
                              .origin = "--set",
                              .rank = kOverrideRank});
  }
  return source;
}

}  // namespace slimpipe::config
