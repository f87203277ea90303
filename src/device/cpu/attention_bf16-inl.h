#pragma once
// bf16 operands of attention's products: each step of a sum is a pair of values, multiplied and added in
// fp32 by one instruction of AVX-512 BF16. Weights and their gradients are rounded to bf16 on the way from
// one product to the next.
//
// Compiled for one instruction set only, hence the usual guard.

#include <immintrin.h>

#include "slimpipe/core/dtype.h"

#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_rows-inl.h"
#include "device/cpu/attention_transpose-inl.h"
#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

struct Bf16Operands {
  using Unit = std::uint32_t;  ///< the pair's first value in the low half
  using UnitVector = __m512i;
  static constexpr int kPair = 2;

  HWY_INLINE static UnitVector broadcast(const Unit* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  HWY_INLINE static UnitVector load(const Unit* p) { return _mm512_load_si512(p); }
  HWY_INLINE static FloatVector multiply_add(UnitVector a, UnitVector b, FloatVector sum) {
    return FloatVector{
        _mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }

  /// to[row][element / 2]; rows [count, padded) become 0.
  static void pack_rows(const HeadRows<const BFloat16>& rows, std::int64_t head_size, std::int64_t padded,
                        Unit* to) {
    const std::int64_t stride = packed_stride(head_size / 2);
    for (std::int64_t i = 0; i < rows.count; ++i, to += stride)
      std::memcpy(to, rows.row(i), static_cast<std::size_t>(head_size) * sizeof(BFloat16));
    std::fill_n(to, (padded - rows.count) * stride, Unit{0});
  }

  /// to[row / 2][element]: a step of a sum over rows is two rows. Rows [count, padded), and elements up to
  /// the next whole vector, become 0.
  static void pack_columns(const HeadRows<const BFloat16>& rows, std::int64_t head_size, std::int64_t padded,
                           Unit* to) {
    const std::int64_t stride = packed_stride(head_size);
    for (std::int64_t i = 0; i < padded; i += 2, to += stride)
      for (std::int64_t d = 0; d < head_size; d += kLineElements) {
        const __mmask16 columns = head_size - d < kLineElements ? 0xFF : 0xFFFF;  // D is a multiple of 8
        const __mmask16 first = i < rows.count ? columns : 0;
        const __mmask16 second = i + 1 < rows.count ? columns : 0;
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, rows.row(i) + d));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, rows.row(i + 1) + d));
        _mm512_store_si512(to + d, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
      }
  }

  /// to[element / 2][query of the panel]; queries past the last become 0.
  static void pack_panel(const HeadRows<const BFloat16>& rows, std::int64_t head_size, Unit* to) {
    // Pairs are moved as they are: to the transposition they are four bytes like any other.
    transpose_to_panel(rows.count, head_size / 2, reinterpret_cast<float*>(to),
                       [&](std::int64_t i) { return reinterpret_cast<const float*>(rows.row(i)); });
  }

  /// One vector of columns of two rows, as one row of units whose steps are the rows.
  HWY_INLINE static void store_steps(const FloatVector (&rows)[kPair], Unit* to) {
    // The conversion puts the first row's values in the lower half, the second row's in the upper.
    const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(rows[1].raw, rows[0].raw));
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i interleaved =
        _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16));
    _mm512_store_si512(to, _mm512_permutexvar_epi16(interleaved, halves));
  }
  /// One vector of a row, as units whose steps are the columns.
  HWY_INLINE static void store_row(FloatVector row, Unit* to) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                       reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(row.raw)));
  }
};

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
