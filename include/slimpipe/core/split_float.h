#pragma once
// fp32 values kept as a bf16 weight and a remainder: the products read the weight, the optimizer both. So
// bf16 training has exact fp32 master values in 4 bytes a parameter, where a master beside a copy takes 6.

#include <bit>
#include <cstdint>

#include "slimpipe/core/dtype.h"

namespace slimpipe {

/// `weight` is the nearest bf16 value (of two that are as near, the one further from zero), `remainder` what
/// the bit pattern of the value has above that of the weight. join(split(x)) is x to the bit, for any x; the
/// weight of a NaN need not be one.
struct SplitFloat {
  BFloat16 weight;
  std::int16_t remainder = 0;
};

[[nodiscard]] constexpr SplitFloat split(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  SplitFloat parts;
  parts.weight.bits = static_cast<std::uint16_t>((word + 0x8000U) >> 16);
  parts.remainder = static_cast<std::int16_t>(static_cast<std::uint16_t>(word));
  return parts;
}

[[nodiscard]] constexpr float join(SplitFloat parts) {
  const auto upper = static_cast<std::uint32_t>(parts.weight.bits) << 16;
  return std::bit_cast<float>(upper + static_cast<std::uint32_t>(static_cast<std::int32_t>(parts.remainder)));
}

}  // namespace slimpipe
