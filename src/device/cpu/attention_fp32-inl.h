// fp32 operands of attention's products: each step of a sum is one value, multiplied and added in fp32.
// Serves fp32 tensors, and bf16 tensors on CPUs without a bf16 product.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_FP32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_FP32_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_FP32_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_FP32_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_rows-inl.h"
#include "device/cpu/attention_transpose-inl.h"
#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

struct Fp32Operands {
  using Unit = float;
  using UnitVector = FloatVector;
  static constexpr int kPair = 1;

  HWY_INLINE static UnitVector broadcast(const Unit* p) { return hn::Set(FloatTag(), *p); }
  HWY_INLINE static UnitVector load(const Unit* p) { return hn::Load(FloatTag(), p); }
  HWY_INLINE static FloatVector multiply_add(UnitVector a, UnitVector b, FloatVector sum) {
    return hn::MulAdd(a, b, sum);
  }

  /// to[row][element]; rows [count, padded), and elements up to the end of a row, become 0.
  template <class T>
  static void pack_rows(const HeadRows<const T>& rows, std::int64_t head_size, std::int64_t padded,
                        Unit* to) {
    const std::int64_t stride = packed_stride(head_size);
    for (std::int64_t i = 0; i < rows.count; ++i, to += stride) {
      for_each_block(head_size, [&](std::int64_t d, auto extent) HWY_ATTR {
        store(HWY_NAMESPACE::load(rows.row(i) + d, extent), to + d, Whole{});
      });
    }
    std::fill_n(to, (padded - rows.count) * stride, 0.0F);
  }

  /// to[row / kPair][element], so that a step of a sum over rows is one unit: here the same.
  template <class T>
  static void pack_columns(const HeadRows<const T>& rows, std::int64_t head_size, std::int64_t padded,
                           Unit* to) {
    pack_rows(rows, head_size, padded, to);
  }

  /// to[element / kPair][query of the panel]; queries past the last become 0.
  template <class T>
  static void pack_panel(const HeadRows<const T>& rows, std::int64_t head_size, Unit* to) {
    if constexpr (std::is_same_v<T, float>) {
      transpose_to_panel(rows.count, head_size, to, [&](std::int64_t i) { return rows.row(i); });
    } else {
      alignas(64) float converted[kTransposeRows][kMaxHeadSize];
      transpose_to_panel(rows.count, head_size, to, [&](std::int64_t i) HWY_ATTR {
        float* row = converted[i % kTransposeRows];
        for_each_block(head_size, [&](std::int64_t d, auto extent) HWY_ATTR {
          store(HWY_NAMESPACE::load(rows.row(i) + d, extent), row + d, extent);
        });
        return static_cast<const float*>(row);
      });
    }
  }

  /// One vector of columns of kPair rows, as one row of units whose steps are the rows.
  HWY_INLINE static void store_steps(const FloatVector (&rows)[kPair], Unit* to) {
    hn::Store(rows[0], FloatTag(), to);
  }
  /// One vector of a row, as units whose steps are the columns.
  HWY_INLINE static void store_row(FloatVector row, Unit* to) { hn::Store(row, FloatTag(), to); }
};

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
