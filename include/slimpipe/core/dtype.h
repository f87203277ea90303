#pragma once
// Element types and the bfloat16 value type.

#include <bit>
#include <cstdint>
#include <string_view>

namespace slimpipe {

enum class DType : std::uint8_t { kF32, kBF16, kF64, kI32, kI16 };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kF64:
      return 8;
    case DType::kI32:
      return 4;
    case DType::kI16:
      return 2;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
      return "fp64";
    case DType::kI32:
      return "int32";
    case DType::kI16:
      return "int16";
  }
  return "?";
}

/// bfloat16: the upper half of an fp32. Conversion from float rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit constexpr BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>((word >> 16) | 0x40U);  // quiet NaN, never rounded to infinity
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
    }
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType kValue = DType::kBF16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType kValue = DType::kI16;
};

/// Calls `body` with a value of float or BFloat16, by a compute type: the one dtype switch.
template <typename Body>
decltype(auto) dispatch_compute(DType dtype, Body&& body) {
  if (dtype == DType::kBF16) return body(BFloat16{});
  return body(float{});
}

}  // namespace slimpipe
