#include "slimpipe/config/load.h"

#include <fmt/core.h>
#include <span>

#include "slimpipe/core/check.h"
#include "slimpipe/io/read_file.h"

#include "config/assembly.h"
#include "config/overrides.h"
#include "config/source_text.h"
#include "config/yaml_reader.h"

namespace slimpipe::config {
namespace {

/// At most one byte more than a configuration may have, so that read_yaml() sees that it is too large.
std::string read_file(const std::filesystem::path& path) try {
  const io::ReadFile file(path);
  std::string text(kMaxYamlBytes + 1, '\0');
  text.resize(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
} catch (const InputError& error) {
  throw_input_error("{}; name a YAML file, such as configs/quickstart.yaml", error.what());
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
