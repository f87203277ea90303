// A configuration back to YAML.

#include <algorithm>
#include <fmt/core.h>

#include "slimpipe/config/load.h"

#include "config/field.h"

namespace slimpipe::config {
namespace {

constexpr std::size_t kCommentColumn = 44;

/// Whether YAML reads the text as itself without quotes, as a text.
bool is_plain_word(std::string_view text) {
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/' || c == '.' || c == '-';
  };
  const bool starts_well = !text.empty() && text.front() != '-' && text.front() != '.';
  return starts_well && text != "null" && text != "Null" && text != "NULL" &&
         std::all_of(text.begin(), text.end(), harmless);
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string yaml_value(const Field& field, const RunConfig& config) {
  const std::string text = field.text_of(config);
  const bool textual =
      std::holds_alternative<Text>(field.domain) || std::holds_alternative<Choices>(field.domain);
  return textual && !is_plain_word(text) ? in_quotes(text) : text;
}

/// Spaces before the keys of a section: "model" stands at the margin, "model.rope" inside it.
std::size_t indent_of_keys(std::string_view section) {
  return section_of(section).empty() ? 2 : 4;
}

std::string header_of(std::string_view section) {
  return fmt::format("{:{}}{}:\n", "", indent_of_keys(section) - 2, leaf_of(section));
}

std::string line_of_field(const Field& field, const RunConfig& config) {
  const std::size_t indent = indent_of_keys(section_of(field.key));
  const bool unset = field.need != Need::kOptional && field.get(config) == field.get(RunConfig{});
  if (unset) return fmt::format("{:{}}# {}: not set", "", indent, leaf_of(field.key));
  return fmt::format("{:{}}{}: {}", "", indent, leaf_of(field.key), yaml_value(field, config));
}

}  // namespace

std::string dump(const Loaded& loaded, bool with_origins) {
  std::string out;
  std::string_view section;
  const std::vector<Field>& table = field_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (section_of(table[i].key) != section) {
      section = section_of(table[i].key);
      out += header_of(section);
    }
    std::string line = line_of_field(table[i], loaded.config);
    if (with_origins) line = fmt::format("{:<{}}  # {}", line, kCommentColumn, loaded.origins.at(i).second);
    out += line + "\n";
  }
  return out;
}

std::string settings_text(const RunConfig& config) {
  std::string text;
  for (const Field& field : field_table()) text += fmt::format("{}: {}\n", field.key, field.text_of(config));
  return text;
}

std::map<std::string, std::string> identity_of(const ModelConfig& model) {
  RunConfig config;
  config.model = model;
  std::map<std::string, std::string> settings;
  for (const Field& field : field_table()) {
    const bool of_the_model = field.key.starts_with("model.");
    if (of_the_model && field.key != "model.preset" && field.key != "model.init_std")
      settings.emplace(field.key, field.text_of(config));
  }
  return settings;
}

}  // namespace slimpipe::config
