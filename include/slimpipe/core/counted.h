#pragma once
// Numbers of things in messages.

#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <string_view>

namespace slimpipe {

/// "1 device", "4 devices"; `ending` makes the plural: counted(2, "process", "es").
[[nodiscard]] inline std::string counted(std::int64_t count, std::string_view thing,
                                         std::string_view ending = "s") {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : ending);
}

}  // namespace slimpipe
