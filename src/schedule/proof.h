#pragma once
// A schedule with the proof that it can run: what validate, simulate and compile begin with.

#include <string>
#include <vector>

#include "slimpipe/schedule/channels.h"

namespace slimpipe::schedule {

struct Proof {
  std::vector<std::string> findings;  ///< as validate() tells them
  ChannelMap map;                     ///< with its outstanding sends planned; where there are no findings
};
[[nodiscard]] Proof prove(const Schedule& schedule);
/// What is wrong with the table of helps and the actions that refer to it. Needs actions in range.
[[nodiscard]] std::vector<std::string> exchange_findings(const Schedule& schedule);

}  // namespace slimpipe::schedule
