#pragma once
// YAML text to entries. Only the plain part of YAML that a configuration needs: mappings of scalars.

#include <cstddef>
#include <string>
#include <string_view>

#include "config/entry.h"

namespace slimpipe::config {

inline constexpr std::size_t kMaxYamlBytes = 1 << 20;
inline constexpr int kMaxYamlDepth = 8;

/// Reads events, never a tree, so that nothing a file says is expanded. Refused, each with its line:
/// duplicate keys, anchors, aliases, tags, merge keys, nesting deeper than kMaxYamlDepth, more than one
/// document, a root that is no mapping, keys that are no scalars, bytes that are not UTF-8, control
/// characters, texts above kMaxYamlBytes, and what is not YAML at all. Does not throw on any text.
[[nodiscard]] Source read_yaml(std::string_view text, const std::string& name);

}  // namespace slimpipe::config
