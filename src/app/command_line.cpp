#include "app/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <optional>

namespace slimpipe::app {
namespace {

template <typename Number>
std::optional<Number> number_from(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

CLI::Validator number_check(bool zero_allowed, const char* expectation) {
  return {[=](std::string& text) -> std::string {
            const auto value = number_from<double>(text);
            const bool fits = value && std::isfinite(*value) && (*value > 0 || (zero_allowed && *value == 0));
            return fits ? std::string() : fmt::format("expected {}, found '{}'", expectation, text);
          },
          ""};
}

/// The command that was being parsed: the innermost one that was recognised.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* command = &app;
  for (auto chosen = command->get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
    command = chosen.back();
  }
  return *command;
}

std::string full_name(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  return full_name(*command.get_parent()) + " " + command.get_name();
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

/// The parser only says that a command is required; the word that stands in its place tells more.
std::string describe_missing_command(const CLI::App& command, const std::vector<std::string>& names) {
  const std::vector<std::string> words = command.remaining();
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  if (words.empty()) return fmt::format("expected a command: {}", list);
  if (words.front().starts_with('-')) return fmt::format("there is no option '{}' here", words.front());
  return fmt::format("there is no command '{}'; expected one of: {}", words.front(), list);
}

}  // namespace

CLI::Validator integer_in(int low, int high) {
  return {[=](std::string& text) -> std::string {
            const auto value = number_from<int>(text);
            const bool fits = value && *value >= low && *value <= high;
            return fits ? std::string()
                        : fmt::format("expected an integer from {} to {}, found '{}'", low, high, text);
          },
          ""};
}

CLI::Validator positive_number() {
  return number_check(false, "a number above 0");
}

CLI::Validator non_negative_number() {
  return number_check(true, "a number of at least 0");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](std::string& text) -> std::string {
            const bool found = std::find(words.begin(), words.end(), text) != words.end();
            return found ? std::string()
                         : fmt::format("expected one of {}, found '{}'", fmt::join(words, ", "), text);
          },
          ""};
}

std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  const std::vector<std::string> names = command_names(command);
  const bool lacks_command = !names.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const std::string problem = lacks_command ? describe_missing_command(command, names) : error.what();
  const std::string name = full_name(command);
  return fmt::format("{}: {}\nSee: {} --help", name, problem, name);
}

}  // namespace slimpipe::app
