#pragma once
// What reader and writer of safetensors files agree on.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "slimpipe/core/dtype.h"

namespace slimpipe::io {

/// The format's own bound on the JSON header.
inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
/// The u64 before the header that gives its length.
inline constexpr std::int64_t kLengthBytes = 8;
inline constexpr std::string_view kMetadataKey = "__metadata__";

[[nodiscard]] std::string_view safetensors_name(DType dtype);
/// Nothing where this project has no such dtype.
[[nodiscard]] std::optional<DType> dtype_of_safetensors(std::string_view name);
/// Bytes of a tensor; nothing where a dimension is negative or the product exceeds int64.
[[nodiscard]] std::optional<std::int64_t> tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace slimpipe::io
