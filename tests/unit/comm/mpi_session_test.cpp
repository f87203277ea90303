#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/core/check.h"

#include "support/catch.h"

namespace slimpipe::comm {
namespace {

/// The environment of a process that no launcher started; restores what was there.
class PlainEnvironment {
 public:
  PlainEnvironment() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_NUM_TASKS"}) {
      const char* value = std::getenv(name);
      saved_.emplace_back(name, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  ~PlainEnvironment() {
    for (const auto& [name, value] : saved_) {
      if (value) {
        setenv(name, value->c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
  }
  PlainEnvironment(const PlainEnvironment&) = delete;
  PlainEnvironment& operator=(const PlainEnvironment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> saved_;
};

}  // namespace

TEST_CASE("a program that no launcher started is the whole run", "[unit]") {
  const PlainEnvironment plain;
  CHECK_FALSE(started_by_launcher());
  MpiSession session;
  CHECK_FALSE(session.environment().mpi);
  CHECK(session.environment().rank == 0);
  CHECK(session.environment().size == 1);
  CHECK(session.environment().local_size == 1);
  session.barrier();
  CHECK(session.broadcast("as it was") == "as it was");
}

TEST_CASE("the variables of mpirun and srun are recognised", "[unit]") {
  const PlainEnvironment plain;
  const char* name = GENERATE("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK");
  setenv(name, "0", 1);
  CHECK(started_by_launcher());
}

TEST_CASE("srun without a process manager is refused when it starts several tasks", "[unit]") {
  const PlainEnvironment plain;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  try {
    const MpiSession session;
    FAIL("not reached");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).find("srun started 4 tasks") != std::string::npos);
  }
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  CHECK_NOTHROW(MpiSession());
}

TEST_CASE("abort ends a process that runs alone with its status", "[unit]") {
  const PlainEnvironment plain;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) MpiSession().abort(3);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
}

}  // namespace slimpipe::comm
