#include "slimpipe/core/check.h"

namespace slimpipe {

std::string cause_of(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) == nullptr) return failure.what();
  return "this process is out of host memory";
}

}  // namespace slimpipe

namespace slimpipe::detail {

void check_failed(const char* file, int line, const char* expression, const std::string& message) {
  std::string_view path(file);
  if (const auto slash = path.rfind('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  throw Error(fmt::format("internal check failed: {} ({}:{}): {}", expression, path, line, message));
}

}  // namespace slimpipe::detail
