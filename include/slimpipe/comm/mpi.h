#pragma once
// Start and end of MPI. A program started without mpirun or srun never initialises it.

#include <memory>
#include <string>

#include "slimpipe/core/patience.h"

namespace slimpipe::comm {

class WaitWatch;

struct ProcessEnvironment {
  int rank = 0;
  int size = 1;
  bool mpi = false;    ///< MPI is initialised
  int local_rank = 0;  ///< among the processes of this host
  int local_size = 1;
};

/// Whether a launcher (mpirun, srun with PMI/PMIx) started this process: the environment variables that
/// say so are read here and nowhere else.
[[nodiscard]] bool started_by_launcher();
/// This process's rank as the launcher's environment tells it, before MPI is initialised; 0 without a
/// launcher.
[[nodiscard]] int launcher_rank();

/// Initialises MPI where a launcher started the process (thread level SERIALIZED at least, else an
/// error; an error too where launcher and MPI disagree about the number of processes).
///
/// The destructor finalizes. Where an exception is passing through, other processes may be waiting for this
/// one and finalizing would hang, so it ends them all at once with status 1. It cannot know the exception:
/// catch and report inside the session's scope, then call abort with the exit status.
///
/// Every call that waits for other processes, the start and the end of MPI included, is watched: `patience`
/// says when it is told who is missing, and when this process gives up, which ends the run with status 1.
class MpiSession {
 public:
  explicit MpiSession(PatienceLimits patience = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  [[nodiscard]] const ProcessEnvironment& environment() const { return environment_; }
  /// Ends every process of the run at once with `status`; does not return. Without MPI: exits this one.
  [[noreturn]] void abort(int status);
  /// All processes have reached this point. Identity without MPI. Main thread, not while a transport lives.
  void barrier();
  /// Broadcasts text from rank 0 (control data at start). Identity without MPI.
  [[nodiscard]] std::string broadcast(const std::string& text);
  /// A problem that some processes met and all must act on alike. Every process gives its own, with an empty
  /// text where it has none, and gets that of the lowest rank that has one.
  struct Problem {
    int rank = 0;
    int status = 0;  ///< exit status
    std::string text;
  };
  [[nodiscard]] Problem first_problem(int status, const std::string& text);

 private:
  /// Returns when every process is here; what follows is then held up by none that is not.
  void meet(const char* where);
  [[nodiscard]] std::string broadcast_from(int root, const std::string& text);
  ProcessEnvironment environment_;
  int exceptions_at_start_;
  std::unique_ptr<WaitWatch> watch_;  ///< with MPI
};

}  // namespace slimpipe::comm
