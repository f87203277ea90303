#include <cstdio>
#include <memory>

#include "slimpipe/config/load.h"
#include "slimpipe/train/memory_plan.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("plan", "Tell how much memory each device of a run will need, to the byte");
  auto options = std::make_shared<ConfigOptions>();
  add_config_options(*command, *options, false);
  command->footer(
      "A dry run of the training step: nothing of the model's size is allocated. Peaks by purpose do not "
      "come\n"
      "at the same time, so they may exceed the peak of all. Not in it: program, libraries and MPI. "
      "Examples:\n"
      "  slimpipe plan configs/quickstart.yaml --set schedule.slices=16\n"
      "  slimpipe plan --set model.preset=llama-7b --set data.sequence_length=65536 --set "
      "parallel.pipeline=8 "
      "--set schedule.slices=32 --set training.microbatches=4");
  command->callback([options, &action] {
    action = [options] {
      const config::RunConfig run = config::load(options->file, options->overrides).config;
      const auto plans = train::plan_memory(run, train::make_platform(run));
      std::fputs(train::format_memory_plan(plans).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace slimpipe::app
