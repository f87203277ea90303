#include "slimpipe/train/together.h"

#include <sstream>

#include "slimpipe/core/check.h"

namespace slimpipe::train {

void together(comm::MpiSession& processes, const std::function<void()>& work) {
  enum Kind { kInput, kFailure };
  std::string problem;
  Kind kind = kInput;
  try {
    work();
  } catch (const InputError& error) {
    problem = error.what();
  } catch (const std::exception& error) {
    problem = cause_of(error);
    kind = kFailure;
  }
  const comm::MpiSession::Problem first = processes.first_problem(kind, problem);
  if (first.text.empty()) return;
  const std::string text = first.rank > 0 ? fmt::format("rank {}: {}", first.rank, first.text) : first.text;
  if (first.status == kInput) throw InputError(text);
  throw Error(text);
}

void check_same_everywhere(comm::MpiSession& processes, const std::string& what, const std::string& text) {
  const std::string expected = processes.broadcast(text);
  together(processes, [&] {
    if (text == expected) return;
    std::istringstream here(text);
    std::istringstream there(expected);
    std::string mine;
    std::string theirs;
    do {
      if (!std::getline(here, mine)) mine.clear();
      if (!std::getline(there, theirs)) theirs.clear();
    } while (mine == theirs && (here || there));
    throw_input_error(
        "{} is not that of rank 0: found \"{}\", rank 0 has \"{}\"; every process needs the same files, "
        "options and "
        "folder",
        what, mine, theirs);
  });
}

}  // namespace slimpipe::train
