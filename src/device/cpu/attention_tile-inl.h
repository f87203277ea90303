// The register-blocked product of attention, for either kind of operands (attention_fp32-inl.h,
// attention_bf16-inl.h).
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_TILE_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_TILE_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_TILE_INL_H_
#endif

#include <cstdint>

#include "device/cpu/attention_layout.h"
#include "device/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

// Rows x vectors of sums held in registers: 8 x 3 with 32 registers, 4 x 3 with 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 8;
#else
inline constexpr int kTileRows = 4;
#endif
inline constexpr int kTileVectors = 3;
static_assert(kGroupRows % kTileRows == 0 && kPanelQueries % (kTileVectors * kVectorLanes) == 0);

/// How a left operand lies in memory: one row after the other, or one step (of the summed dimension) after
/// the other with its rows side by side.
enum class LeftOrder { kRows, kSteps };

/// Element (row, step) of a left operand is data[row · stride + step], or data[step · stride + row].
template <LeftOrder kOrder, class Unit>
struct Left {
  const Unit* data;
  std::int64_t stride;

  [[nodiscard]] HWY_INLINE Left from_row(std::int64_t row) const {
    return {data + (kOrder == LeftOrder::kRows ? row * stride : row), stride};
  }
  [[nodiscard]] HWY_INLINE Left from_step(std::int64_t step) const {
    return {data + (kOrder == LeftOrder::kRows ? step : step * stride), stride};
  }
  [[nodiscard]] HWY_INLINE const Unit* at(std::int64_t row, std::int64_t step) const {
    return data + (kOrder == LeftOrder::kRows ? row * stride + step : step * stride + row);
  }
};

/// Element (step, column) of a right operand is data[step · stride + column]; rows are aligned.
template <class Unit>
struct Right {
  const Unit* data;
  std::int64_t stride;
};

template <int kVectors>
struct Sums {
  FloatVector at[kTileRows][kVectors];
};

/// The sums over `steps` steps of kTileRows rows and kVectors vectors of columns.
template <class Operands, int kVectors, LeftOrder kOrder>
HWY_INLINE void multiply_tile(Left<kOrder, typename Operands::Unit> left,
                              Right<typename Operands::Unit> right, std::int64_t steps,
                              Sums<kVectors>& result) {
  Sums<kVectors> sums;
#pragma GCC unroll 8
  for (int row = 0; row < kTileRows; ++row)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums.at[row][v] = hn::Zero(FloatTag());
  const auto* b = right.data;
  for (std::int64_t step = 0; step < steps; ++step, b += right.stride) {
    decltype(Operands::load(b)) columns[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) columns[v] = Operands::load(b + v * kVectorLanes);
#pragma GCC unroll 8
    for (int row = 0; row < kTileRows; ++row) {
      const auto value = Operands::broadcast(left.at(row, step));
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)
        sums.at[row][v] = Operands::multiply_add(value, columns[v], sums.at[row][v]);
    }
  }
  result = sums;
}

/// Rows [0, rows), a multiple of kGroupRows, of one strip of kVectors vectors of columns.
/// store(row, column, sums) takes each finished tile; trim(row, left, right, steps) may shorten its sum.
template <class Operands, int kVectors, LeftOrder kOrder, class Store>
HWY_NOINLINE void multiply_strip(Left<kOrder, typename Operands::Unit> left,
                                 Right<typename Operands::Unit> right, std::int64_t rows, std::int64_t steps,
                                 std::int64_t column, const Store& store) {
  for (std::int64_t row = 0; row < rows; row += kTileRows) {
    Sums<kVectors> sums;
    const std::int64_t skipped = store.first_step(row);
    multiply_tile<Operands, kVectors, kOrder>(left.from_row(row).from_step(skipped),
                                              {right.data + column + skipped * right.stride, right.stride},
                                              steps - skipped, sums);
    store(row, column, sums);
  }
}

/// left · right for `rows` rows and `vectors` vectors of columns, by strips of up to three vectors. The
/// columns of a strip stay in the L1 cache while the left operand streams by.
template <class Operands, LeftOrder kOrder, class Store>
HWY_INLINE void multiply(Left<kOrder, typename Operands::Unit> left, Right<typename Operands::Unit> right,
                         std::int64_t rows, std::int64_t vectors, std::int64_t steps, const Store& store) {
  std::int64_t v = 0;
  while (v < vectors) {
    const std::int64_t remaining = vectors - v;
    const std::int64_t column = v * kVectorLanes;
    if (remaining == 1) {
      multiply_strip<Operands, 1>(left, right, rows, steps, column, store);
      v += 1;
    } else if (remaining == 2 || remaining == 4) {  // 2 + 2 keeps the multipliers busier than 3 + 1
      multiply_strip<Operands, 2>(left, right, rows, steps, column, store);
      v += 2;
    } else {
      multiply_strip<Operands, 3>(left, right, rows, steps, column, store);
      v += 3;
    }
  }
}

// --- what becomes of finished tiles

/// C = tile.
struct StoreTile {
  float* c;
  std::int64_t stride;

  HWY_INLINE static std::int64_t first_step(std::int64_t /*row*/) { return 0; }
  template <int kVectors>
  HWY_INLINE void operator()(std::int64_t row, std::int64_t column, const Sums<kVectors>& sums) const {
    float* p = c + row * stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)
        hn::Store(sums.at[i][v], FloatTag(), p + i * stride + v * kVectorLanes);
  }
};

/// C += tile.
struct AddTile {
  float* c;
  std::int64_t stride;

  HWY_INLINE static std::int64_t first_step(std::int64_t /*row*/) { return 0; }
  template <int kVectors>
  HWY_INLINE void operator()(std::int64_t row, std::int64_t column, const Sums<kVectors>& sums) const {
    float* p = c + row * stride + column;
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        float* to = p + i * stride + v * kVectorLanes;
        hn::Store(hn::Add(hn::Load(FloatTag(), to), sums.at[i][v]), FloatTag(), to);
      }
  }
};

/// C = C · factor + tile, one factor a column.
struct RescaleAndAddTile {
  float* c;
  std::int64_t stride;
  const float* factors;

  HWY_INLINE static std::int64_t first_step(std::int64_t /*row*/) { return 0; }
  template <int kVectors>
  HWY_INLINE void operator()(std::int64_t row, std::int64_t column, const Sums<kVectors>& sums) const {
    float* p = c + row * stride + column;
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      const FloatVector factor = hn::Load(FloatTag(), factors + column + v * kVectorLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i) {
        float* to = p + i * stride + v * kVectorLanes;
        hn::Store(hn::MulAdd(hn::Load(FloatTag(), to), factor, sums.at[i][v]), FloatTag(), to);
      }
    }
  }
};

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
