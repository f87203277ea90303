// The textual form of a schedule, both ways.

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/schedule/schedule.h"

namespace slimpipe::schedule {
namespace {

constexpr std::string_view kBlanks = " \t\r";

/// A word as an error message shows it: short and printable whatever it holds.
std::string quoted(std::string_view word) {
  constexpr std::size_t kShown = 40;
  std::string text = "\"";
  for (const char c : word.substr(0, kShown)) text += (c >= ' ' && c <= '~') ? c : '?';
  return text + (word.size() > kShown ? "...\"" : "\"");
}

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// The part of `text` before `separator`, which is taken off with it; all of it where there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

std::optional<ActionKind> kind_from_letter(char letter) {
  switch (letter) {
    case 'F':
      return ActionKind::kForward;
    case 'B':
      return ActionKind::kBackward;
    case 'I':
      return ActionKind::kBackwardInput;
    case 'W':
      return ActionKind::kBackwardWeight;
    case 'H':
      return ActionKind::kHelp;
    default:
      return std::nullopt;
  }
}

std::optional<Action> parse_action(std::string_view word) {
  const auto kind = word.empty() ? std::nullopt : kind_from_letter(word.front());
  if (!kind) return std::nullopt;
  word.remove_prefix(1);
  Action action{.kind = *kind};
  if (const auto at = word.find('@'); at != std::string_view::npos) {
    const auto arg = parse_number(word.substr(at + 1));
    if (!arg) return std::nullopt;
    action.arg = *arg;
    word = word.substr(0, at);
  }
  if (std::count(word.begin(), word.end(), '.') != 2) return std::nullopt;
  for (int* field : {&action.chunk, &action.microbatch, &action.slice}) {
    const auto value = parse_number(take_until(word, '.'));
    if (!value) return std::nullopt;
    *field = *value;
  }
  return action;
}

std::optional<std::int64_t> parse_long(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// owner>helper:action:first_key+keys
std::optional<Help> parse_help(std::string_view word) {
  const auto owner = parse_number(take_until(word, '>'));
  const auto helper = parse_number(take_until(word, ':'));
  const auto action = parse_action(take_until(word, ':'));
  const auto first_key = parse_long(take_until(word, '+'));
  const auto keys = parse_long(word);
  if (!owner || !helper || !action || !first_key || !keys) return std::nullopt;
  return Help{*owner, *helper, *first_key, *keys, *action};
}

std::string format_help(const Help& help) {
  return fmt::format("{}>{}:{}:{}+{}", help.owner, help.helper, to_string(help.action), help.first_key,
                     help.keys);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Schedule parse() {
    parse_spec();
    parse_stages();
    for (int device = 0; device < schedule_.spec.pipeline; ++device) parse_device(device);
    if (next_line()) parse_exchange();
    return std::move(schedule_);
  }

 private:
  /// Moves to the next line that has words.
  bool next_line() {
    while (!text_.empty()) {
      ++line_number_;
      line_ = take_until(text_, '\n');
      word_number_ = 0;
      if (line_.find_first_not_of(kBlanks) != std::string_view::npos) return true;
    }
    return false;
  }

  void require_line(std::string_view expected) {
    if (!next_line())
      throw_input_error("schedule text ends after line {}: expected {}", line_number_, expected);
  }

  /// Empty at the end of the line.
  std::string_view next_word() {
    ++word_number_;
    line_.remove_prefix(std::min(line_.size(), line_.find_first_not_of(kBlanks)));
    const auto word = line_.substr(0, line_.find_first_of(kBlanks));
    line_.remove_prefix(word.size());
    return word;
  }

  [[noreturn]] void fail_at_word(std::string_view word, std::string_view expected) const {
    throw_input_error("schedule text line {}, word {}: expected {}, found {}", line_number_, word_number_,
                      expected, word.empty() ? "the end of the line" : quoted(word));
  }

  int parse_size(std::string_view key) {
    const auto word = next_word();
    auto value = word;
    if (const auto number = take_until(value, '=') == key ? parse_number(value) : std::nullopt)
      return *number;
    fail_at_word(word, fmt::format("{}=NUMBER", key));
  }

  void parse_spec() {
    require_line("a line like \"slimpipe p=4 v=1 m=2 n=4 slope=2 training\"");
    Spec& spec = schedule_.spec;
    const auto name = next_word();
    const auto kind = kind_from_name(name);
    if (!kind) fail_at_word(name, "a kind (gpipe, 1f1b, terapipe, slimpipe)");
    spec.kind = *kind;
    spec.pipeline = parse_size("p");
    spec.virtual_stages = parse_size("v");
    spec.microbatches = parse_size("m");
    spec.slices = parse_size("n");
    spec.warmup_slope = parse_size("slope");
    const auto purpose = next_word();
    if (purpose != "training" && purpose != "forward") fail_at_word(purpose, "\"training\" or \"forward\"");
    schedule_.training = purpose == "training";
    if (const auto word = next_word(); !word.empty()) fail_at_word(word, "the end of the line");
    if (const auto found = problems(spec); !found.empty())
      throw_input_error("schedule text line {}: {}", line_number_, found.front());
  }

  void parse_stages() {
    require_line("a line \"stages\" with a word for each device");
    const Spec& spec = schedule_.spec;
    if (const auto word = next_word(); word != "stages") fail_at_word(word, "\"stages\"");
    for (int device = 0; device < spec.pipeline; ++device) {
      const auto word = next_word();
      auto& stages = schedule_.stage_of.emplace_back();
      for (auto rest = word; !rest.empty();) {
        const auto stage = parse_number(take_until(rest, ','));
        if (!stage) fail_at_word(word, "stage numbers joined by commas");
        stages.push_back(*stage);
      }
      if (std::ssize(stages) != spec.virtual_stages || word.back() == ',')
        fail_at_word(word, fmt::format("{} stage(s) of device {}", spec.virtual_stages, device));
    }
    if (const auto word = next_word(); !word.empty()) fail_at_word(word, "the end of the line");
  }

  void parse_device(int device) {
    const auto label = fmt::format("{}:", device);
    require_line(fmt::format("the actions of device {} after \"{}\"", device, label));
    if (const auto word = next_word(); word != label) fail_at_word(word, quoted(label));
    auto& actions = schedule_.devices.emplace_back();
    for (auto word = next_word(); !word.empty(); word = next_word()) {
      const auto action = parse_action(word);
      if (!action)
        fail_at_word(word, "an action: F, B, I, W or H, then chunk.microbatch.slice, as in \"F0.1.3\"");
      actions.push_back(*action);
    }
  }

  /// The current line and those that follow.
  void parse_exchange() {
    HelpTable& exchange = schedule_.exchange;
    if (const auto word = next_word(); word != "exchange")
      fail_at_word(word, "the end or \"exchange\": all devices are there");
    exchange.slice_tokens = parse_size("tokens");
    const auto when = next_word();
    if (when != "early" && when != "late") fail_at_word(when, "\"early\" or \"late\"");
    exchange.early = when == "early";
    if (const auto word = next_word(); !word.empty()) fail_at_word(word, "the end of the line");
    while (next_line()) parse_slot();
  }

  void parse_slot() {
    auto& slots = schedule_.exchange.slots;
    const auto label = fmt::format("@{}:", slots.size());
    if (const auto word = next_word(); word != label) fail_at_word(word, quoted(label));
    auto& helps = slots.emplace_back();
    for (auto word = next_word(); !word.empty(); word = next_word()) {
      const auto help = parse_help(word);
      if (!help) fail_at_word(word, "a help owner>helper:action:first_key+keys, as in \"1>0:F0.0.3:0+256\"");
      helps.push_back(*help);
    }
  }

  std::string_view text_;
  std::string_view line_;
  int line_number_ = 0;
  int word_number_ = 0;
  Schedule schedule_;
};

}  // namespace

std::string format_text(const Schedule& schedule) {
  const Spec& spec = schedule.spec;
  std::string text = fmt::format("{} p={} v={} m={} n={} slope={} {}\nstages", name_of(spec.kind),
                                 spec.pipeline, spec.virtual_stages, spec.microbatches, spec.slices,
                                 spec.warmup_slope, schedule.training ? "training" : "forward");
  for (const auto& stages : schedule.stage_of) text += fmt::format(" {}", fmt::join(stages, ","));
  text += '\n';
  for (int device = 0; device < std::ssize(schedule.devices); ++device) {
    text += fmt::format("{}:", device);
    for (const auto& action : schedule.devices[device]) text += ' ' + to_string(action);
    text += '\n';
  }
  const HelpTable& exchange = schedule.exchange;
  if (exchange.slice_tokens == 0) return text;
  text += fmt::format("exchange tokens={} {}\n", exchange.slice_tokens, exchange.early ? "early" : "late");
  for (std::size_t slot = 0; slot < exchange.slots.size(); ++slot) {
    text += fmt::format("@{}:", slot);
    for (const Help& help : exchange.slots[slot]) text += ' ' + format_help(help);
    text += '\n';
  }
  return text;
}

Schedule parse_text(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace slimpipe::schedule
