#pragma once
// The field table: the one description of every key of the configuration. YAML, --set, validation,
// `config show` and the reference all walk it; a key exists because its row does.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/config/run_config.h"

#include "config/domain.h"

namespace slimpipe::config {

enum class Need : std::uint8_t {
  kOptional,     ///< the default is a value like any other
  kRequired,     ///< the default means "not set", and every command needs it set
  kForTraining,  ///< the default means "not set"; only training needs it set
};

struct Field {
  std::string_view key;  ///< "training.steps"
  Domain domain;
  std::string_view meaning;  ///< one sentence, with units
  std::function<Value(const RunConfig&)> get;
  std::function<void(RunConfig&, const Value&)> set;
  Need need = Need::kOptional;
  /// Which values of the domain this build can run, as text; empty: all of them.
  std::vector<std::string> available;
  /// Values outside the domain that are known and that this build has not.
  std::vector<std::string> unavailable;

  [[nodiscard]] Field required() &&;
  [[nodiscard]] Field required_for_training() &&;
  [[nodiscard]] Field only(std::vector<std::string> values) &&;
  [[nodiscard]] Field without(std::vector<std::string> values) &&;
  /// What this build has, for an error or the reference.
  [[nodiscard]] std::string available_text() const;
  [[nodiscard]] std::string text_of(const RunConfig& config) const { return format(domain, get(config)); }
};

/// Every field, in the order of the structs of run_config.h. `model.preset` comes first.
[[nodiscard]] const std::vector<Field>& field_table();
/// Index into field_table(), or -1.
[[nodiscard]] int find_field(std::string_view key);
/// "model", "model.rope", ...: in the order of the table.
[[nodiscard]] const std::vector<std::string>& section_names();
[[nodiscard]] bool is_section(std::string_view key);
/// Names of the keys and sections directly inside a section, comma-separated.
[[nodiscard]] std::string keys_inside(std::string_view section);

/// "model.rope.kind" -> "model.rope"; "model" -> "".
[[nodiscard]] std::string_view section_of(std::string_view key);
/// "model.rope.kind" -> "kind".
[[nodiscard]] std::string_view leaf_of(std::string_view key);

}  // namespace slimpipe::config
