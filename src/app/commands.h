#pragma once
// One file a command; each adds its options to the application and returns what to run.

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace slimpipe::app {

/// What a chosen command does; the exit status.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_schedule(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

/// Prints the failure and returns the exit status.
int report_failure(const std::exception& error);

/// The configuration file and --set options that several commands share.
struct ConfigOptions {
  std::string file;
  std::vector<std::string> overrides;
};
void add_config_options(CLI::App& command, ConfigOptions& options, bool file_required);

}  // namespace slimpipe::app
