#pragma once
// What was written where: the raw material of a configuration, before any of it is understood.

#include <string>
#include <vector>

namespace slimpipe::config {

enum class Form {
  kPlain,    ///< a scalar without quotes
  kQuoted,   ///< a scalar in quotes, or a block of text
  kNothing,  ///< `key:` with no value, or null
  kList,     ///< its items are not recorded
  kMapping,  ///< what is inside follows as entries of its own
};

/// One key with what stands behind it.
struct Entry {
  std::string key;  ///< dotted
  Form form = Form::kPlain;
  std::string text;    ///< of a scalar
  std::string where;   ///< start of a message about it: "run.yaml:7: training.steps", "--set a.b=c"
  std::string origin;  ///< "run.yaml:7", "--set"
  int rank = 0;        ///< order of messages: the line in a file, kOverrideRank for --set
};

inline constexpr int kOverrideRank = 1'000'000'000;
inline constexpr int kWholeRank = kOverrideRank + 1;  ///< about the configuration as a whole

struct Problem {
  int rank = 0;
  std::string text;  ///< a whole line: where, key, what was expected
};

/// The entries of one source and what is wrong with its form. `complete` is false where reading had to
/// stop: what follows the last problem is unknown.
struct Source {
  std::vector<Entry> entries;
  std::vector<Problem> problems;
  bool complete = true;
};

}  // namespace slimpipe::config
