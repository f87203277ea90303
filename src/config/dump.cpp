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

std::string quoted(std::string_view text) {
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
  return textual && !is_plain_word(text) ? quoted(text) : text;
}

/// Headers of the sections that a field opens: "model:" and "  rope:" for the first field of model.rope
/// where the field before it was not in model.
std::string section_headers(std::string_view section, std::string_view before) {
  if (section == before) return "";
  const std::string_view outer = section_of(section);
  const bool outer_is_open = outer.empty() || outer == before || section_of(before) == outer;
  std::string text = outer_is_open ? "" : section_headers(outer, before);
  const std::size_t depth = outer.empty() ? 0 : 1;
  return text + fmt::format("{:{}}{}:\n", "", 2 * depth, leaf_of(section));
}

std::string line_of_field(const Field& field, const RunConfig& config) {
  const std::size_t indent = section_of(section_of(field.key)).empty() ? 2 : 4;
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
    out += section_headers(section_of(table[i].key), section);
    section = section_of(table[i].key);
    std::string line = line_of_field(table[i], loaded.config);
    if (with_origins) line = fmt::format("{:<{}}  # {}", line, kCommentColumn, loaded.origins.at(i).second);
    out += line + "\n";
  }
  return out;
}

}  // namespace slimpipe::config
