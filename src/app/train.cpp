#include <csignal>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <utility>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/config/load.h"
#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"
#include "slimpipe/core/patience.h"
#include "slimpipe/train/together.h"
#include "slimpipe/train/trainer.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {
namespace {

struct TrainOptions {
  ConfigOptions config;
  std::string run_folder;
  bool resume = false;
};

/// "runs/NAME-20260131-235959"; the first process's clock decides for all.
std::string default_run_folder(const std::string& config_file) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  return "runs/" + std::filesystem::path(config_file).stem().string() + "-" + stamp;
}

log::Level log_level(const std::string& name) {
  if (name == "warning") return log::Level::kWarning;
  if (name == "error") return log::Level::kError;
  return log::Level::kInfo;
}

/// The configuration, or why there is none: that is for all processes to agree on, when they can.
struct Attempt {
  config::Loaded loaded;
  std::exception_ptr problem;
};

Attempt load(const TrainOptions& options) {
  Attempt attempt;
  try {
    if (options.resume && options.run_folder.empty()) {
      throw_input_error("--resume needs --run-dir DIR: the folder of the run to go on with");
    }
    attempt.loaded = config::load(options.config.file, options.config.overrides);
  } catch (const std::exception&) {
    attempt.problem = std::current_exception();
  }
  return attempt;
}

void train_on(comm::MpiSession& processes, const TrainOptions& options, Attempt attempt) {
  std::signal(SIGPIPE, SIG_IGN);  // whoever read the progress may leave; the run goes on
  train::together(processes, [&] {
    if (attempt.problem) std::rethrow_exception(attempt.problem);
  });
  config::Loaded& loaded = attempt.loaded;
  const comm::ProcessEnvironment& environment = processes.environment();
  log::configure(
      {.level = log_level(loaded.config.log.level), .rank = environment.mpi ? environment.rank : -1});
  const std::string folder = processes.broadcast(
      options.run_folder.empty() ? default_run_folder(options.config.file) : options.run_folder);
  train::train({.configuration = std::move(loaded), .run_folder = folder, .resume = options.resume},
               processes);
}

int run_train(const TrainOptions& options) {
  Attempt attempt = load(options);  // before MPI, whose start is watched as it says
  comm::MpiSession processes(patience_of(attempt.loaded.config.log.watchdog_seconds));
  try {
    train_on(processes, options, std::move(attempt));
  } catch (const std::exception& error) {
    // Every process is here alike (a failure of one has ended them all), so MPI can end in order. It waits
    // for the process that reports: a launcher kills the others once one has ended with a bad status.
    return report_failure(error);
  }
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train the model that a configuration file describes");
  add_config_options(*command, options->config, true);
  command
      ->add_option("--run-dir", options->run_folder,
                   "Folder for everything the run writes (default: runs/CONFIG-DATE)")
      ->type_name("DIR")
      ->check(one_line());
  command->add_flag("--resume", options->resume,
                    "Go on from the newest checkpoint in --run-dir, in any pipeline layout");
  command->footer(
      "configs/quickstart.yaml reads the token file that scripts/quickstart.sh makes. Examples:\n"
      "  slimpipe train configs/quickstart.yaml\n"
      "  slimpipe train configs/quickstart.yaml --set parallel.pipeline=2 --set schedule.slices=8\n"
      "  mpirun -np 4 slimpipe train configs/quickstart.yaml --run-dir runs/four    (with fewer than 4 "
      "cores:\n"
      "                                                           mpirun --oversubscribe)\n"
      "  slimpipe train configs/quickstart.yaml --run-dir runs/four --resume --set training.steps=400");
  command->callback([options, &action] { action = [options] { return run_train(*options); }; });
}

}  // namespace slimpipe::app
