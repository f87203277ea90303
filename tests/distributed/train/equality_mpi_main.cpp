// The equality matrix with a process a device: started by mpirun with 1, 2 or 4 processes, it runs every
// case of that pipeline size, and of two devices a process where that gives one, in fp32; a few in bf16.

#include <cstdio>

#include "slimpipe/comm/mpi.h"

#include "support/equality_matrix.h"
#include "support/exchange_cases.h"

int main() {
  using namespace slimpipe;
  comm::MpiSession session;
  const comm::ProcessEnvironment& processes = session.environment();
  test::MatrixReferences references;
  int failures = 0;
  int checked = 0;
  std::vector<int> pipelines = {processes.size};
  if (processes.size == 2) pipelines.push_back(4);  // two devices a process
  std::vector<test::MatrixCase> cases = test::matrix_cases(pipelines);
  for (const test::MatrixCase& c : test::interleaved_cases(pipelines)) cases.push_back(c);
  for (const test::MatrixCase& c : test::bf16_cases(pipelines)) {
    const bool sliced = c.kind == schedule::Kind::kSlimPipe && c.slices == 4 && c.warmup_slope == 2;
    if (sliced || c.kind == schedule::Kind::kOneFOneB) cases.push_back(c);
  }
  const auto check = [&](const auto& c, const auto& problems_of) {
    try {
      for (const std::string& problem : problems_of(c)) {
        std::fprintf(stderr, "rank %d: %s\n", processes.rank, problem.c_str());
        ++failures;
      }
      ++checked;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s: %s\n", processes.rank, c.name().c_str(), error.what());
      session.abort(1);
    }
  };
  for (const test::MatrixCase& c : cases)
    check(c, [&](const auto& one) { return test::check_matrix_case(one, processes, references); });
  if (processes.size > 1) {
    test::ExchangeReferences plain;
    for (const test::ExchangeCase& c : test::exchange_cases({processes.size}))
      check(c, [&](const auto& one) { return test::check_exchange_case(one, processes, plain); });
  }
  if (failures > 0) session.abort(1);
  if (processes.rank == 0) std::printf("%d cases equal on %d processes\n", checked, processes.size);
  return 0;
}
