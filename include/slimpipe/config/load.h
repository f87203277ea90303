#pragma once
// YAML file and overrides to a RunConfig.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/config/run_config.h"

namespace slimpipe::config {

/// Where a value came from: "default", "preset llama-7b", "FILE:LINE" or "--set".
struct Origin {
  std::string text;
};

/// A loaded configuration with the origin of every field, in field table order.
struct Loaded {
  RunConfig config;
  std::vector<std::pair<std::string, std::string>> origins;  ///< dotted key -> origin
};

/// Reads `file` (may be empty: defaults only), applies `overrides` ("a.b=value" each, in order), fills
/// derived sizes (kv_heads, head_size) and validates everything that needs no other file. Throws one
/// InputError that lists ALL problems, each with file, line, key, what was expected and the nearest known
/// key. Relative paths in a YAML file are relative to the current folder.
[[nodiscard]] Loaded load(const std::filesystem::path& file, const std::vector<std::string>& overrides);
/// The same from YAML text; `name` stands for the file in messages.
[[nodiscard]] Loaded load_text(std::string_view yaml, const std::string& name,
                               const std::vector<std::string>& overrides);

/// YAML of every field; with `with_origins` a comment on each line says where it came from.
/// load_text(dump(c)) gives c back.
[[nodiscard]] std::string dump(const Loaded& loaded, bool with_origins);
/// The reference in Markdown: every key, type, default, range, meaning.
[[nodiscard]] std::string reference();
[[nodiscard]] std::vector<std::string> preset_names();

/// A number of bytes: "512MiB", "8GB", "123456". Throws InputError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);

}  // namespace slimpipe::config
