#pragma once
// The JSON header of a safetensors file, checked.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "slimpipe/io/safetensors.h"

namespace slimpipe::io {

/// The tensors by offset: they fill the data section without holes or overlaps. `text` is the header,
/// `data_bytes` what follows it in the file. Throws InputError with file and tensor.
[[nodiscard]] std::vector<TensorEntry> parse_safetensors_header(const std::filesystem::path& path,
                                                                std::string_view text,
                                                                std::int64_t data_bytes);

}  // namespace slimpipe::io
