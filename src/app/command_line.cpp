#include "app/command_line.h"

#include <algorithm>
#include <charconv>
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

CLI::Validator number_in(double low, double high) {
  return {[=](std::string& text) -> std::string {
            const auto value = number_from<double>(text);
            const bool fits = value && *value >= low && *value <= high;  // NaN is not
            return fits ? std::string()
                        : fmt::format("expected a number from {} to {}, found '{}'", low, high, text);
          },
          ""};
}

CLI::Validator one_line() {
  return {[](std::string& text) -> std::string {
            if (text.empty()) return "expected a name, found an empty text";
            const auto control =
                std::ranges::find_if(text, [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; });
            if (control == text.end()) return {};
            return fmt::format("expected a name of printable characters, found 0x{:02x} at byte {}",
                               static_cast<unsigned char>(*control), control - text.begin() + 1);
          },
          ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](std::string& text) -> std::string {
            if (std::ranges::count(words, text) > 0) return {};
            return fmt::format("expected one of {}, found '{}'", fmt::join(words, ", "), text);
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
