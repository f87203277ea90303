#include "config/field.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "config/field_rows.h"

namespace slimpipe::config {
namespace {

std::vector<Field> all_rows() {
  std::vector<Field> rows = model_rows();
  for (auto section : {data_rows, layout_rows, training_rows, operation_rows}) {
    std::vector<Field> more = section();
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  }
  return rows;
}

std::vector<std::string> all_sections() {
  std::vector<std::string> names;
  for (const Field& field : field_table()) {
    const std::string name(section_of(field.key));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace

Field Field::required() && {
  need = Need::kRequired;
  return std::move(*this);
}

Field Field::required_for_training() && {
  need = Need::kForTraining;
  return std::move(*this);
}

Field Field::only(std::vector<std::string> values) && {
  available = std::move(values);
  return std::move(*this);
}

Field Field::without(std::vector<std::string> values) && {
  unavailable = std::move(values);
  return std::move(*this);
}

std::string Field::available_text() const {
  return available.empty() ? allowed(domain) : fmt::format("{}", fmt::join(available, ", "));
}

const std::vector<Field>& field_table() {
  static const std::vector<Field> table = all_rows();
  return table;
}

int find_field(std::string_view key) {
  const std::vector<Field>& table = field_table();
  const auto at = std::find_if(table.begin(), table.end(), [key](const Field& f) { return f.key == key; });
  return at == table.end() ? -1 : static_cast<int>(at - table.begin());
}

const std::vector<std::string>& section_names() {
  static const std::vector<std::string> names = all_sections();
  return names;
}

bool is_section(std::string_view key) {
  const std::vector<std::string>& names = section_names();
  return std::find(names.begin(), names.end(), key) != names.end();
}

std::string keys_inside(std::string_view section) {
  std::vector<std::string_view> keys;
  for (const Field& field : field_table())
    if (section_of(field.key) == section) keys.push_back(leaf_of(field.key));
  for (const std::string& name : section_names())
    if (section_of(name) == section) keys.push_back(leaf_of(name));
  return fmt::format("{}", fmt::join(keys, ", "));
}

std::string_view section_of(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

std::string_view leaf_of(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

}  // namespace slimpipe::config
