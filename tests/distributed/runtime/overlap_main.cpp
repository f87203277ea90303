// Messages between processes that arrive while their receiver computes; started by mpirun with the number of
// devices. A message that does not shows as an error or as the time-out of the test.

#include <cstdlib>
#include <exception>
#include <fmt/core.h>

#include "slimpipe/core/log.h"

#include "support/mpi_harness.h"
#include "support/overlap.h"

namespace slimpipe::runtime {
namespace {

void run(comm::MpiSession& session, int devices) {
  // With a spare core an engine thread calls MPI in every process, whatever the number of its devices.
  test::MpiHarness harness(session, devices, true);
  for (const auto kind : {schedule::Kind::kOneFOneB, schedule::Kind::kSlimPipe}) {
    const auto programs = test::pipeline_programs(kind, devices);
    for (int watchful = 0; watchful < devices; ++watchful) {
      test::messages_arrive_during_compute(harness, programs, watchful);
    }
  }
}

int run_and_report(int devices) {
  comm::MpiSession session;
  log::configure({.rank = session.environment().rank});
  try {
    run(session, devices);
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    session.abort(EXIT_FAILURE);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace slimpipe::runtime

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} DEVICES\n", argv[0]);
    return 2;
  }
  try {
    return slimpipe::runtime::run_and_report(std::atoi(argv[1]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
