#pragma once
// Overrides from the command line: "a.b=value".

#include <string>
#include <vector>

#include "config/entry.h"

namespace slimpipe::config {

[[nodiscard]] Source read_overrides(const std::vector<std::string>& overrides);

}  // namespace slimpipe::config
