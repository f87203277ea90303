// Rows of a head into panels, which have the queries side by side, and back.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_TRANSPOSE_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_TRANSPOSE_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_rows-inl.h"
#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// Rows are transposed four at a time: vectors of four elements exist everywhere.
inline constexpr std::int64_t kTransposeRows = 4;
inline constexpr std::array<float, kMaxHeadSize> kZeroRow{};

/// to[column · stride + row] = rows[row][column]; `columns` is a multiple of 4. Any four-byte elements.
HWY_INLINE void transpose_four(const float* const (&rows)[kTransposeRows], std::int64_t columns, float* to,
                               std::int64_t stride) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t column = 0; column < columns; ++column, to += stride)
    for (std::int64_t row = 0; row < kTransposeRows; ++row) to[row] = rows[row][column];
#else
  const hn::FixedTag<float, 4> d;
  for (std::int64_t column = 0; column < columns; column += 4, to += 4 * stride) {
    const auto row0 = hn::LoadU(d, rows[0] + column);
    const auto row1 = hn::LoadU(d, rows[1] + column);
    const auto row2 = hn::LoadU(d, rows[2] + column);
    const auto row3 = hn::LoadU(d, rows[3] + column);
    const auto even_lower = hn::InterleaveLower(d, row0, row2);
    const auto odd_lower = hn::InterleaveLower(d, row1, row3);
    const auto even_upper = hn::InterleaveUpper(d, row0, row2);
    const auto odd_upper = hn::InterleaveUpper(d, row1, row3);
    hn::StoreU(hn::InterleaveLower(d, even_lower, odd_lower), d, to);
    hn::StoreU(hn::InterleaveUpper(d, even_lower, odd_lower), d, to + stride);
    hn::StoreU(hn::InterleaveLower(d, even_upper, odd_upper), d, to + 2 * stride);
    hn::StoreU(hn::InterleaveUpper(d, even_upper, odd_upper), d, to + 3 * stride);
  }
#endif
}

/// panel[element][query] = row(query)[element], where row(query) points to `elements` four-byte elements;
/// queries from `count` on become 0.
template <class Row>
HWY_INLINE void transpose_to_panel(std::int64_t count, std::int64_t elements, float* panel, const Row& row) {
  for (std::int64_t i = 0; i < kPanelQueries; i += kTransposeRows) {
    const float* rows[kTransposeRows];
    for (std::int64_t j = 0; j < kTransposeRows; ++j) rows[j] = i + j < count ? row(i + j) : kZeroRow.data();
    transpose_four(rows, elements, panel + i, kPanelQueries);
  }
}

/// Rows from a panel [element][query], each times its query's factor.
template <class T>
void unpack_panel(const float* panel, const float* factors, std::int64_t head_size, const HeadRows<T>& rows) {
  alignas(64) float part[kPanelQueries][kLineElements];
  for (std::int64_t d = 0; d < head_size; d += kLineElements) {
    const std::int64_t width = std::min(kLineElements, head_size - d);
    for (std::int64_t e = 0; e < width; e += kTransposeRows) {
      const float* from = panel + (d + e) * kPanelQueries;
      transpose_four({from, from + kPanelQueries, from + 2 * kPanelQueries, from + 3 * kPanelQueries},
                     (rows.count + kTransposeRows - 1) / kTransposeRows * kTransposeRows, &part[0][e],
                     kLineElements);
    }
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const Lanes scaled = load(part[i], Whole{}) * broadcast(factors[i]);
      if (width == kLineElements)
        store(scaled, rows.row(i) + d, Whole{});
      else
        store(scaled, rows.row(i) + d, Tail{width});
    }
  }
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
