#include "slimpipe/schedule/schedule.h"

#include <algorithm>
#include <cstdio>
#include <fmt/ranges.h>
#include <memory>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/terminal.h"
#include "slimpipe/schedule/simulate.h"
#include "slimpipe/schedule/validate.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {
namespace {

struct ScheduleOptions {
  schedule::Spec spec{.kind = schedule::Kind::kSlimPipe,
                      .pipeline = 4,
                      .virtual_stages = 1,
                      .microbatches = 2,
                      .slices = 1,
                      .warmup_slope = 2};
  std::string kind = "slimpipe";
  int virtual_stages = 0;  // 0: by kind
  int slices = 0;          // 0: by kind
  std::vector<double> cost = {1, 2};
  double latency = 0;
  std::string format = "text";
  int width = 0;
};

/// F,B has the two parts of a backward take half of B each; F,B,W gives them apart.
schedule::UniformCost uniform_cost_of(const ScheduleOptions& options) {
  const std::vector<double>& cost = options.cost;
  return {.forward = cost[0],
          .backward_input = cost.size() == 3 ? cost[1] : cost[1] / 2,
          .backward_weight = cost.size() == 3 ? cost[2] : cost[1] / 2,
          .latency = options.latency};
}

/// Times are bounded so that no sum of them, nor any share of one in another, leaves the range of a double.
constexpr double kMaxTime = 1e100;

int drawing_width() {
  constexpr int kDefault = 160;
  const int columns = terminal_columns(STDOUT_FILENO);
  return columns > 0 ? columns : kDefault;
}

int run_schedule(ScheduleOptions options) {
  options.spec.kind = *schedule::kind_from_name(options.kind);
  constexpr int kUsualSlices = 8;
  schedule::Spec& spec = options.spec;
  spec.virtual_stages =
      options.virtual_stages > 0 ? options.virtual_stages : schedule::least_virtual_stages(spec.kind);
  const int usual_slices = spec.virtual_stages > 1 ? std::max(kUsualSlices, spec.pipeline) : kUsualSlices;
  spec.slices = options.slices > 0 ? options.slices : schedule::is_sliced(spec.kind) ? usual_slices : 1;
  const schedule::Schedule built = schedule::build(options.spec);
  const std::vector<std::string> problems = schedule::validate(built);
  if (!problems.empty()) throw_error("the schedule is unsound:\n  {}", fmt::join(problems, "\n  "));
  const schedule::Simulation simulation =
      schedule::simulate(built, schedule::uniform_cost(uniform_cost_of(options)));
  if (options.format == "json") {
    std::printf("%s\n", schedule::to_json(built, simulation).c_str());
  } else {
    const int width = options.width > 0 ? options.width : drawing_width();
    std::fputs(schedule::draw(built, simulation, width).c_str(), stdout);
  }
  return 0;
}

}  // namespace

void add_schedule(CLI::App& app, Action& action) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command =
      app.add_subcommand("schedule", "Build, check, draw and simulate a schedule without a run");
  const std::vector<std::string> kinds = schedule::kind_names();
  command
      ->add_option("--kind", options->kind,
                   fmt::format("Order of the forwards and backwards: {}", fmt::join(kinds, ", ")))
      ->type_name("KIND")
      ->check(one_of(kinds))
      ->capture_default_str();
  const auto count = integer_in(1, 1 << 20);
  command->add_option("--pipeline", options->spec.pipeline, "p, devices")
      ->check(count)
      ->capture_default_str();
  command->add_option("--microbatches", options->spec.microbatches, "m, per step")
      ->check(count)
      ->capture_default_str();
  command
      ->add_option("--slices", options->slices,
                   "n, per microbatch (default: 8, or one a device; kinds that do not slice: 1)")
      ->check(count);
  command
      ->add_option("--virtual-stages", options->virtual_stages,
                   "v, model chunks per device (default: 2 for interleaved-1f1b, zb-v and v-half, else 1)")
      ->check(count);
  command
      ->add_option("--warmup-slope", options->spec.warmup_slope,
                   "Forwards by which the warm-up grows from each device to the one before it (slimpipe)")
      ->check(count)
      ->capture_default_str();
  command
      ->add_option(
          "--cost", options->cost,
          "Times of a slice's forward and backward (of a sequence where kinds do not slice), or of forward, "
          "backward for inputs and backward for weights")
      ->type_name("F,B[,W]")
      ->delimiter(',')
      ->expected(2, 3)
      ->check(number_in(1 / kMaxTime, kMaxTime))
      ->default_str("1,2");
  command
      ->add_option("--latency", options->latency, "Time of a message between devices, in the unit of --cost")
      ->check(number_in(0, kMaxTime))
      ->capture_default_str();
  command->add_option("--format", options->format, "text (a drawing) or json (for other tools)")
      ->type_name("FORMAT")
      ->check(one_of({"text", "json"}))
      ->capture_default_str();
  command->add_option("--width", options->width, "Columns of the drawing (default: the terminal's, else 160)")
      ->check(integer_in(40, 100000));
  command->footer(
      "The drawing has a row a device; '.' is idle time. F1.3 is the forward of microbatch 1, slice 3, B "
      "its\n"
      "backward; with less room a digit is a forward of that microbatch, a letter a backward. Examples:\n"
      "  slimpipe schedule --kind slimpipe --pipeline 4 --microbatches 2 --slices 8\n"
      "  slimpipe schedule --kind 1f1b --pipeline 4 --microbatches 2 --cost 8,16");
  command->callback([options, &action] { action = [options] { return run_schedule(*options); }; });
}

}  // namespace slimpipe::app
