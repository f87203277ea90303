#include "io/safetensors_format.h"

#include <array>
#include <utility>

#include "slimpipe/core/check.h"

namespace slimpipe::io {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 5> kDTypeNames = {{{DType::kF32, "F32"},
                                                                            {DType::kBF16, "BF16"},
                                                                            {DType::kF64, "F64"},
                                                                            {DType::kI32, "I32"},
                                                                            {DType::kI16, "I16"}}};

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const auto& [known, name] : kDTypeNames) {
    if (known == dtype) return name;
  }
  throw_error("dtype {} has no safetensors name", slimpipe::name_of(dtype));
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [dtype, known] : kDTypeNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

std::optional<std::int64_t> tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace slimpipe::io
