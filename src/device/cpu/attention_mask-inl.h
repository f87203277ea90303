// The mask of a tile of which some queries do not see some keys.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_MASK_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_MASK_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_MASK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_visibility.h"
#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// Of each query of a panel the first and the last key it sees, counted from a tile's first key. They are
/// small numbers once clamped to the tile, hence exact in fp32, which has comparisons everywhere.
class PanelMask {
 public:
  PanelMask(const QuerySpan& queries, std::int64_t first_key) {
    constexpr std::int64_t kBefore = -1;
    constexpr std::int64_t kAfter = kForwardKeys;
    for (std::int64_t i = 0; i < kPanelQueries; ++i) {
      const std::int64_t start = queries.document_starts[std::min(i, queries.count - 1)];
      first_[i] = static_cast<float>(std::clamp(start - first_key, kBefore, kAfter));
      last_[i] = static_cast<float>(std::clamp(queries.position + i - first_key, kBefore, kAfter));
    }
  }

  /// Which queries, of the vector that starts at `query`, see `key`.
  [[nodiscard]] HWY_INLINE FloatMask sees(std::int64_t query, std::int64_t key) const {
    const FloatTag d;
    const auto index = hn::Set(d, static_cast<float>(key));
    return hn::And(hn::Ge(index, hn::Load(d, first_ + query)), hn::Le(index, hn::Load(d, last_ + query)));
  }

 private:
  alignas(64) float first_[kPanelQueries];
  alignas(64) float last_[kPanelQueries];
};

/// Where every query sees every key.
struct NoMask {};

HWY_INLINE FloatVector masked(const NoMask& /*mask*/, std::int64_t /*query*/, std::int64_t /*key*/,
                              FloatVector value, FloatVector /*hidden*/) {
  return value;
}
HWY_INLINE FloatVector masked(const PanelMask& mask, std::int64_t query, std::int64_t key, FloatVector value,
                              FloatVector hidden) {
  return hn::IfThenElse(mask.sees(query, key), value, hidden);
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
