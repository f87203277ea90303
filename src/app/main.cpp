// The program: reads the command line, runs one command, turns failures into an exit status.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <new>
#include <unistd.h>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/core/check.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {

int report_failure(const std::exception& error) {
  // Started by mpirun, every process meets the same bad input: the first one alone speaks.
  const bool bare = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const std::string cause = cause_of(error) + (bare ? ": give it more, or ask for smaller sizes" : "");
  if (comm::launcher_rank() == 0) std::fprintf(stderr, "slimpipe: %s\n", cause.c_str());
  return exit_status_of(error);
}

namespace {

/// A file that is opened while a standard descriptor is closed would take its number, and what the program
/// prints would land in it.
void open_standard_descriptors() {
  int descriptor = 0;
  do {
    descriptor = ::open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) ::close(descriptor);
}

/// The status, or a failure where not all that was printed could be written.
int status_after_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "slimpipe: standard output could not be written: %s\n", std::strerror(errno));
  return status == kExitSuccess ? kExitFailure : status;
}

}  // namespace
}  // namespace slimpipe::app

int main(int argc, char** argv) {
  slimpipe::app::open_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a failed write, told like a full disk
  CLI::App app(
      "slimpipe trains long-context language models: every sequence is cut into uniform slices that flow\n"
      "through pipeline stages (SlimPipe, arXiv 2504.14519). One process drives all devices, or mpirun\n"
      "shares them among processes.",
      "slimpipe");
  app.set_version_flag("--version", std::string("slimpipe ") + SLIMPIPE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Each command has its own --help. Start with: scripts/quickstart.sh\n"
      "Exit status: 0 success, 1 a run that failed, 2 wrong input (command line, configuration, data).");
  slimpipe::app::Action action;
  slimpipe::app::add_train(app, action);
  slimpipe::app::add_data(app, action);
  slimpipe::app::add_config(app, action);
  slimpipe::app::add_schedule(app, action);
  slimpipe::app::add_plan(app, action);
  slimpipe::app::add_bench(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      return slimpipe::app::status_after_output(app.exit(error));
    }
    if (slimpipe::comm::launcher_rank() == 0) {
      std::fprintf(stderr, "%s\n", slimpipe::app::describe_usage_error(app, error).c_str());
    }
    return slimpipe::kExitBadInput;
  }
  try {
    return slimpipe::app::status_after_output(action());
  } catch (const std::exception& error) {
    return slimpipe::app::report_failure(error);
  }
}
