#include "slimpipe/core/check.h"

#include <new>

namespace slimpipe {

std::string text_of(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) == nullptr) return failure.what();
  return "out of host memory: the system refuses this process more. Look at its limits (ulimit -v, a "
         "container's) "
         "and at what else runs; fewer microbatches or slices, or smaller inputs, need less";
}

namespace detail {

void check_failed(const char* file, int line, const char* expression, const std::string& message) {
  std::string_view path(file);
  if (const auto slash = path.rfind('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  throw Error(fmt::format("internal check failed: {} ({}:{}): {}", expression, path, line, message));
}

}  // namespace detail
}  // namespace slimpipe
