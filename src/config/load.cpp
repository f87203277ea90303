#include "slimpipe/config/load.h"

#include <fmt/core.h>
#include <fstream>
#include <sstream>
#include <system_error>

#include "slimpipe/core/check.h"

#include "config/assembly.h"
#include "config/overrides.h"
#include "config/source_text.h"
#include "config/yaml_reader.h"

namespace slimpipe::config {
namespace {

/// At most one byte more than a configuration may have, so that read_yaml() sees that it is too large.
std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::is_directory(status))
    throw_input_error("{}: expected a YAML file, found a folder", file.string());
  // A pipe could wait for ever, and has nothing left for the second of several processes.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw_input_error("{}: expected a YAML file, found a device or pipe; write the configuration to a file",
                      file.string());
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    throw_input_error("{}: cannot be read; name an existing YAML file, such as configs/quickstart.yaml",
                      file.string());
  std::string text(kMaxYamlBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) throw_input_error("{}: reading failed", file.string());
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace

Loaded load_text(std::string_view yaml, const std::string& name, const std::vector<std::string>& overrides) {
  const std::string shown = printable(name, name.size());  // origins and messages are single lines
  Assembly assembly(shown);
  assembly.add(read_yaml(yaml, shown));
  assembly.add(read_overrides(overrides));
  return assembly.finish();
}

Loaded load(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  if (file.empty()) return load_text("", "configuration", overrides);
  return load_text(read_file(file), file.string(), overrides);
}

std::vector<std::string> training_problems(const RunConfig& config) {
  std::vector<std::string> problems;
  const RunConfig defaults;
  for (const Field& field : field_table())
    if (field.need == Need::kForTraining && field.get(config) == field.get(defaults))
      problems.push_back(fmt::format("{}: required for training ({}): {}", field.key,
                                     expectation(field.domain), field.meaning));
  return problems;
}

}  // namespace slimpipe::config
