#pragma once
// The JSON header of a safetensors file, checked.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/io/safetensors.h"

namespace slimpipe::io {

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  ///< by offset; they fill the data section without holes or overlaps
  std::map<std::string, std::string> metadata;
};

/// `text` is the header, `data_bytes` what follows it in the file. Throws InputError with file and tensor.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path,
                                                         std::string_view text, std::int64_t data_bytes);

}  // namespace slimpipe::io
