#pragma once
// YAML file and overrides to a RunConfig.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimpipe/config/run_config.h"

namespace slimpipe::config {

/// A loaded configuration with the origin of every field, in field table order: "default",
/// "preset llama-7b", "FILE:LINE", "--set", or "derived: ..." for sizes computed from others.
struct Loaded {
  RunConfig config;
  std::vector<std::pair<std::string, std::string>> origins;  ///< dotted key -> origin
};

/// Reads `file` (may be empty: no file), applies `overrides` ("a.b=value" each, in order), fills
/// derived sizes (kv_heads, head_size) and validates everything that needs no other file. Throws one
/// InputError that lists ALL problems, each with file, line, key, what was expected and the nearest known
/// key. Later overrides win over earlier ones, overrides over the file, the file over the preset, the preset
/// over the defaults. Relative paths in a YAML file are relative to the current folder.
[[nodiscard]] Loaded load(const std::filesystem::path& file, const std::vector<std::string>& overrides);
/// The same from YAML text; `name` stands for the file in messages.
[[nodiscard]] Loaded load_text(std::string_view yaml, const std::string& name,
                               const std::vector<std::string>& overrides);

/// What a valid configuration still lacks to be trained with, a sentence each: data.train, training.steps.
[[nodiscard]] std::vector<std::string> training_problems(const RunConfig& config);

/// YAML of every field; with `with_origins` a comment on each line says where it came from.
/// load_text(dump(c)) gives c back. Fields that are not set (see training_problems) are commented out.
[[nodiscard]] std::string dump(const Loaded& loaded, bool with_origins);
/// Every field of a configuration, a line "key: value" each.
[[nodiscard]] std::string settings_text(const RunConfig& config);
/// What decides which weights a model has and what it computes with them: its settings by dotted key, as
/// text. Not among them: model.preset (a name for the others) and model.init_std (where weights came from).
[[nodiscard]] std::map<std::string, std::string> identity_of(const ModelConfig& model);
/// The reference in Markdown: every key, type, default, range, meaning.
[[nodiscard]] std::string reference();
[[nodiscard]] std::vector<std::string> preset_names();

/// A number of bytes: "512MiB", "8GB", "123456". Throws InputError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);

}  // namespace slimpipe::config
