#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <exception>
#include <fmt/ranges.h>
#include <mpi.h>
#include <optional>
#include <string_view>
#include <vector>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"

#include "comm/mpi_check.h"
#include "comm/wait_watch.h"

namespace slimpipe::comm {
namespace {

/// Set for every process by Open MPI's mpirun and by srun or another launcher that speaks PMIx or PMI.
constexpr std::array kLauncherVariables = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
/// How many processes the launcher says it started, where it says so.
constexpr std::array kSizeVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
constexpr std::array kRankVariables = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

std::optional<int> integer_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size()) return std::nullopt;
  return value;
}

/// srun starts the tasks of a step without a process manager where none is chosen: each would run alone
/// and believe itself to be the whole run.
void refuse_tasks_that_cannot_meet() {
  const int tasks = integer_variable("SLURM_STEP_NUM_TASKS").value_or(1);
  if (tasks <= 1) return;
  throw_input_error(
      "srun started {} tasks without PMIx or PMI, so they cannot find each other: use srun --mpi=pmix, or "
      "mpirun inside the allocation",
      tasks);
}

void initialise() {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "initialise");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "set its error handler");
  if (provided < MPI_THREAD_SERIALIZED) {
    throw_error(
        "this MPI library offers thread level {}, but level {} (MPI_THREAD_SERIALIZED) is needed: use an "
        "MPI built with thread support",
        provided, MPI_THREAD_SERIALIZED);
  }
}

ProcessEnvironment query_environment() {
  ProcessEnvironment environment;
  environment.mpi = true;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &environment.rank), "tell this process's rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &environment.size), "tell the number of processes");
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "group the processes by host");
  check_mpi(MPI_Comm_rank(host, &environment.local_rank), "tell this process's rank on its host");
  check_mpi(MPI_Comm_size(host, &environment.local_size), "tell the number of processes of this host");
  check_mpi(MPI_Comm_free(&host), "free a communicator");
  return environment;
}

/// An mpirun of another MPI than the program is linked to starts N processes which each see a world of one.
void check_world_size(int size) {
  for (const char* name : kSizeVariables) {
    const std::optional<int> started = integer_variable(name);
    if (started && *started != size) {
      throw_error(
          "the launcher started {} processes ({}), but MPI sees {}: mpirun or srun belongs to another MPI "
          "than "
          "the one this program is linked to",
          *started, name, size);
    }
  }
}

/// "ranks 2, 5 and 7 more", of those that are not here.
std::string missing_ranks(const std::vector<bool>& here) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) missing.push_back(rank);
  }
  const std::size_t more = missing.size() - std::min(missing.size(), kNamed);
  missing.resize(missing.size() - more);
  return fmt::format("rank{} {}{}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

bool started_by_launcher() {
  return std::any_of(kLauncherVariables.begin(), kLauncherVariables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

int launcher_rank() {
  for (const char* name : kRankVariables) {
    if (const std::optional<int> rank = integer_variable(name)) return *rank;
  }
  return 0;
}

MpiSession::MpiSession(PatienceLimits patience) : exceptions_at_start_(std::uncaught_exceptions()) {
  if (!started_by_launcher()) {
    refuse_tasks_that_cannot_meet();
    return;
  }
  watch_ = std::make_unique<WaitWatch>(patience, fmt::format("rank {}", launcher_rank()));
  const Waiting waiting(*watch_,
                        "all processes of the run to initialise MPI (missing is who does not say this)");
  initialise();
  environment_ = query_environment();
  check_world_size(environment_.size);
}

MpiSession::~MpiSession() {
  if (!environment_.mpi) return;
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    log::error("an exception ends this process; ending all processes of the run");
    abort(kExitFailure);
  }
  try {
    meet("the end of the run");
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
  const Waiting waiting(*watch_, "all processes of the run to end MPI");
  if (MPI_Finalize() != MPI_SUCCESS) log::error("MPI_Finalize failed");
}

void MpiSession::abort(int status) {
  log::flush();
  if (environment_.mpi) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

void MpiSession::meet(const char* where) {
  if (!environment_.mpi) return;
  constexpr int kTag = 0;
  const auto tell_first = [](int rank) {
    check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, rank, kTag, MPI_COMM_WORLD), "tell a process of another");
  };
  const Waiting waiting(*watch_, fmt::format("rank 0 at {}, which waits for the others", where));
  if (environment_.rank > 0) {
    tell_first(0);
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
              "hear from the first process");
    return;
  }
  std::vector<bool> here(static_cast<std::size_t>(environment_.size), false);
  here[0] = true;
  for (int others = environment_.size - 1; others > 0; --others) {
    watch_->begin(fmt::format("{} at {}", missing_ranks(here), where));
    MPI_Status status;
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &status),
              "hear from another process");
    here[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
  }
  for (int rank = 1; rank < environment_.size; ++rank) tell_first(rank);
}

void MpiSession::barrier() {
  meet("a barrier");
}

std::string MpiSession::broadcast(const std::string& text) {
  if (!environment_.mpi) return text;
  meet("the start of the run");
  const Waiting waiting(*watch_, "what rank 0 tells all");
  return broadcast_from(0, text);
}

MpiSession::Problem MpiSession::first_problem(int status, const std::string& text) {
  if (!environment_.mpi) return {0, status, text};
  meet("the checks before the run");
  const Waiting waiting(*watch_, "all processes to compare problems");
  int first = text.empty() ? environment_.size : environment_.rank;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "compare problems");
  if (first == environment_.size) return {};
  check_mpi(MPI_Bcast(&status, 1, MPI_INT, first, MPI_COMM_WORLD), "broadcast a status");
  return {first, status, broadcast_from(first, text)};
}

std::string MpiSession::broadcast_from(int root, const std::string& text) {
  SLIMPIPE_CHECK(text.size() <= INT_MAX, "broadcast of {} bytes", text.size());
  int length = static_cast<int>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT, root, MPI_COMM_WORLD), "broadcast a length");
  std::string result = text;
  result.resize(static_cast<std::size_t>(length));
  check_mpi(MPI_Bcast(result.data(), length, MPI_CHAR, root, MPI_COMM_WORLD), "broadcast text");
  return result;
}

}  // namespace slimpipe::comm
