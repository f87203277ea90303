#include "slimpipe/core/terminal.h"

#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace slimpipe {
namespace {

std::string_view environment_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

}  // namespace

bool takes_escape_sequences(int descriptor) {
  const std::string_view name = environment_text("TERM");
  return isatty(descriptor) == 1 && !name.empty() && name != "dumb";
}

bool wants_colour(int descriptor) {
  return takes_escape_sequences(descriptor) && environment_text("NO_COLOR").empty();
}

int terminal_columns(int descriptor) {
  winsize size{};
  const bool known = isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  return known ? size.ws_col : 0;
}

}  // namespace slimpipe
