// One head of a [T, heads, D] tensor.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_ROWS_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_ROWS_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_ROWS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "slimpipe/core/tensor.h"

#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// Rows of one head of a [T, heads, D] tensor: `count` of them, `stride` elements apart.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  std::int64_t count;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }
};

/// Rows [begin, end) of head `head`.
template <class T>
HeadRows<T> head_rows(const Tensor& tensor, std::int64_t head, std::int64_t begin, std::int64_t end) {
  return {tensor.as<std::remove_const_t<T>>() + begin * tensor.stride(0) + head * tensor.stride(1),
          tensor.stride(0), end - begin};
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
