#pragma once
// Schedules that no builder makes.

#include <string>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {

/// A schedule given by its spec and the text of its lists.
inline Schedule with_lists(const Spec& spec, const std::string& lists) {
  auto text = format_text(build(spec));
  return parse_text(text.substr(0, text.find("0:")) + lists);
}

}  // namespace slimpipe::schedule
