// The time line as a grid of characters.

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>

#include "slimpipe/schedule/simulate.h"

namespace slimpipe::schedule {
namespace {

/// How time becomes columns.
struct Scale {
  double columns_per_time = 1;
  bool labelled = false;  ///< every cell has room for its label and a blank
  int columns = 0;        ///< of the whole grid

  [[nodiscard]] int column(double time) const {
    return static_cast<int>(std::lround(time * columns_per_time));
  }
};

std::string label_of(const Action& action, const Spec& spec) {
  if (action.kind == ActionKind::kHelp) return "H";
  auto label = to_string(action).substr(0, 1) + std::to_string(action.microbatch);
  if (spec.slices > 1) label += fmt::format(".{}", action.slice);
  return label;
}

int longest_label(const Spec& spec) {
  const Action last{.microbatch = spec.microbatches - 1, .slice = spec.slices - 1};
  return static_cast<int>(label_of(last, spec).size());
}

/// Duration of the shortest action that takes any time: the smallest cell.
double smallest_duration(const Simulation& simulation) {
  double smallest = simulation.makespan;
  for (const auto& actions : simulation.devices)
    for (const auto& timed : actions)
      if (timed.end > timed.start) smallest = std::min(smallest, timed.end - timed.start);
  return smallest > 0 ? smallest : 1;
}

Scale choose_scale(const Spec& spec, const Simulation& simulation, int room) {
  const double unit = smallest_duration(simulation);
  const int wide = longest_label(spec) + 1;
  const double columns = simulation.makespan / unit;
  const bool labelled = columns * wide <= room;
  // Cells below a thousandth of the time line would only make it endless.
  const double per_unit = labelled ? wide : std::min(1.0, 1000 * std::max(1, room) / columns);
  Scale scale{.columns_per_time = per_unit / unit, .labelled = labelled};
  scale.columns = scale.column(simulation.makespan);
  return scale;
}

/// One character for an action: forwards are digits, backwards lower-case letters, weight parts capitals.
char mark_of(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
      return static_cast<char>('0' + action.microbatch % 10);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return static_cast<char>('a' + action.microbatch % 26);
    case ActionKind::kBackwardWeight:
      return static_cast<char>('A' + action.microbatch % 26);
    case ActionKind::kHelp:
      return '+';
  }
  return '?';
}

std::string cell(const Action& action, const Spec& spec, bool labelled, int width) {
  if (width <= 0) return {};
  if (!labelled) return std::string(width, mark_of(action));
  auto text = label_of(action, spec);
  text.resize(width - 1, action.kind == ActionKind::kForward ? ' ' : '-');
  return text + ' ';
}

std::string row(const std::vector<TimedAction>& actions, const Spec& spec, const Scale& scale) {
  std::string text(scale.columns, '.');
  for (const auto& timed : actions) {
    const int start = scale.column(timed.start);
    const auto content = cell(timed.action, spec, scale.labelled, scale.column(timed.end) - start);
    text.replace(start, content.size(), content);
  }
  return text;
}

std::string counted(int count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string headline(const Schedule& schedule) {
  const Spec& spec = schedule.spec;
  auto text = fmt::format("{}: {}, {}", name_of(spec.kind), counted(spec.pipeline, "device", "devices"),
                          counted(spec.microbatches, "microbatch", "microbatches"));
  if (spec.slices > 1) text += fmt::format(" of {} slices", spec.slices);
  if (spec.kind == Kind::kSlimPipe) text += fmt::format(", warm-up slope {}", spec.warmup_slope);
  return text + (schedule.training ? "\n" : ", forward only\n");
}

std::string footer(const Simulation& simulation) {
  return fmt::format(
      "bubble {:.2f} %, makespan {:g}\npeak slices in flight: {}; worst device: activations of {:.2f} "
      "microbatches over its layers\n",
      100 * simulation.bubble, simulation.makespan, fmt::join(simulation.peak, " "),
      simulation.worst_peak_fraction);
}

}  // namespace

std::string draw(const Schedule& schedule, const Simulation& simulation, int width) {
  const int devices = static_cast<int>(simulation.devices.size());
  const int margin = static_cast<int>(std::to_string(devices - 1).size()) + 2;
  const int room = std::max(1, width - margin);
  const auto scale = choose_scale(schedule.spec, simulation, room);

  auto text = headline(schedule);
  for (int device = 0; device < devices; ++device) {
    auto line = row(simulation.devices[device], schedule.spec, scale);
    if (scale.columns > room) line.resize(room);
    line.resize(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>{}}  {}\n", device, margin - 2, line);
  }
  if (scale.columns > room)
    text += fmt::format("cut: the first {} of {} columns; {} are needed\n", room, scale.columns,
                        scale.columns + margin);
  if (!scale.labelled)
    text += "forward: digit, microbatch modulo 10; backward: letter, a is microbatch 0; idle: .\n";
  return text + footer(simulation);
}

}  // namespace slimpipe::schedule
