#include <cstdio>
#include <memory>

#include "slimpipe/config/load.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {

void add_config_options(CLI::App& command, ConfigOptions& options, bool file_required) {
  CLI::Option* file = command.add_option("config", options.file, "YAML configuration file")
                          ->type_name("FILE")
                          ->check(one_line());
  if (file_required) file->required();
  command
      .add_option("--set", options.overrides, "Set one value, e.g. --set training.steps=200; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
}

void add_config(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("config", "Show, check and explain configurations");
  command->require_subcommand(1);
  command->footer("What a key means: slimpipe config reference. Examples: the files in configs/.");

  auto options = std::make_shared<ConfigOptions>();
  CLI::App* show =
      command->add_subcommand("show", "Print the resolved configuration and where each value came from");
  add_config_options(*show, *options, false);
  show->footer(
      "The output is a complete configuration file. Examples:\n"
      "  slimpipe config show configs/quickstart.yaml --set schedule.slices=16\n"
      "  slimpipe config show --set model.preset=llama-7b --set data.sequence_length=262144");
  show->callback([options, &action] {
    action = [options] {
      std::fputs(config::dump(config::load(options->file, options->overrides), true).c_str(), stdout);
      return 0;
    };
  });

  CLI::App* validate =
      command->add_subcommand("validate", "Check a configuration and print all its problems at once");
  add_config_options(*validate, *options, true);
  validate->footer(
      "Looks at no other file. Example:\n"
      "  slimpipe config validate configs/llama-7b-256k.yaml --set schedule.slices=64");
  validate->callback([options, &action] {
    action = [options] {
      (void)config::load(options->file, options->overrides);
      std::printf("%s: valid\n", options->file.c_str());
      return 0;
    };
  });

  CLI::App* reference =
      command->add_subcommand("reference", "Print every key with type, default and meaning, in Markdown");
  reference->footer(
      "configs/REFERENCE.md is its output. Example:\n"
      "  slimpipe config reference | less");
  reference->callback([&action] {
    action = [] {
      std::fputs(config::reference().c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace slimpipe::app
