#include <cstdio>
#include <memory>

#include "slimpipe/config/load.h"

#include "app/commands.h"

namespace slimpipe::app {

void add_config_options(CLI::App& command, ConfigOptions& options, bool file_required) {
  CLI::Option* file = command.add_option("config", options.file, "YAML configuration file");
  if (file_required) file->required();
  command
      .add_option("--set", options.overrides, "Override one value: --set section.key=value; may be repeated")
      ->expected(1)
      ->take_all();
}

void add_config(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("config", "Show, check and explain configurations");
  command->require_subcommand(1);

  auto options = std::make_shared<ConfigOptions>();
  CLI::App* show =
      command->add_subcommand("show", "Print the resolved configuration and where each value came from");
  add_config_options(*show, *options, false);
  show->callback([options, &action] {
    action = [options] {
      std::fputs(config::dump(config::load(options->file, options->overrides), true).c_str(), stdout);
      return 0;
    };
  });

  CLI::App* validate =
      command->add_subcommand("validate", "Check a configuration; prints every problem there is");
  add_config_options(*validate, *options, true);
  validate->callback([options, &action] {
    action = [options] {
      (void)config::load(options->file, options->overrides);
      std::printf("%s: valid\n", options->file.c_str());
      return 0;
    };
  });

  CLI::App* reference =
      command->add_subcommand("reference", "Print every key with type, default and meaning");
  reference->callback([&action] {
    action = [] {
      std::fputs(config::reference().c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace slimpipe::app
