#include "slimpipe/train/together.h"

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

}  // namespace slimpipe::train
