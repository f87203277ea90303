// Attention's backward of one KV head: all its query heads, block of queries by block of queries.
//
// With S the scores in units of log2, P = 2^(S - lse) and dS = scale · P ∘ (dP - delta), all transposed
// (keys down, queries across), a tile of keys and a block of queries give
//   dP = V·dOᵀ,  dV += P·dO,  dK += dS·Q,  dQᵀ += Kᵀ·dS.
// dQ of a block gathers in scratch; dK and dV are added straight to the gradients, once a block of queries,
// in ascending order of query head and query.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>

#include "slimpipe/device/operators.h"

#include "device/cpu/attention_exp-inl.h"
#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_mask-inl.h"
#include "device/cpu/attention_rows-inl.h"
#include "device/cpu/attention_tile-inl.h"
#include "device/cpu/attention_transpose-inl.h"
#include "device/cpu/attention_visibility.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

/// C += tile for rows of a gradient tensor, which ends where it ends: neither rows nor columns are padded.
/// Steps are queries: those before a row's key see nothing of it and are skipped.
struct AddToGradient {
  HeadRows<float> rows;
  std::int64_t columns;
  std::int64_t first_key;  ///< position of row 0, from the position of step 0
  std::int64_t pair;       ///< queries a step

  HWY_INLINE std::int64_t first_step(std::int64_t row) const {
    return std::max<std::int64_t>(first_key + row, 0) / pair;
  }
  template <int kVectors>
  HWY_INLINE void operator()(std::int64_t row, std::int64_t column, const Sums<kVectors>& sums) const {
    const FloatTag d;
    if (row + kTileRows <= rows.count && column + kVectors * kVectorLanes <= columns) {
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) {
          float* to = rows.row(row + i) + column + v * kVectorLanes;
          hn::StoreU(hn::Add(hn::LoadU(d, to), sums.at[i][v]), d, to);
        }
      return;
    }
    alignas(64) float tile[kTileRows][kVectors * kVectorLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) hn::Store(sums.at[i][v], d, &tile[i][v * kVectorLanes]);
    const std::int64_t width = std::min<std::int64_t>(kVectors * kVectorLanes, columns - column);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kTileRows, rows.count - row); ++i)
      for (std::int64_t j = 0; j < width; ++j) rows.row(row + i)[column + j] += tile[i][j];
  }
};

template <class T, class Operands>
class BackwardHead {
 public:
  using Unit = typename Operands::Unit;
  static constexpr int kPair = Operands::kPair;

  BackwardHead(const AttentionBackward& args, std::int64_t kv_head, std::int64_t heads_per_kv_head,
               std::byte* memory)
      : args_(args),
        kv_head_(kv_head),
        heads_per_kv_head_(heads_per_kv_head),
        head_size_(args.q.dim(2)),
        block_(block_queries(head_size_)),
        log2_scale_(args.scale * std::numbers::log2e_v<float>),
        scratch_(memory, head_size_),
        queries_{0, 0, args.query_position, scratch_.document_starts} {}

  void run() {
    const std::int64_t queries = args_.q.dim(0);
    for (head_ = kv_head_ * heads_per_kv_head_; head_ < (kv_head_ + 1) * heads_per_kv_head_; ++head_)
      for (std::int64_t begin = 0; begin < queries; begin += block_) {
        queries_.begin = begin;
        queries_.end = std::min(queries, begin + block_);
        load_queries();
        for (std::size_t i = 0; i < args_.blocks.size(); ++i)
          for (std::int64_t key = 0; key < args_.blocks[i].k.dim(0); key += kBackwardKeys)
            visit_tile(args_.blocks[i], args_.kv_gradients[i], key,
                       std::min(args_.blocks[i].k.dim(0), key + kBackwardKeys));
        store_queries();
      }
  }

 private:
  [[nodiscard]] std::int64_t weight_stride() const { return packed_stride(block_ / kPair); }

  void load_queries() {
    find_document_starts(args_.document_starts, queries_.span().position, queries_.span().count,
                         scratch_.document_starts);
    const std::int64_t padded = queries_.panels() * kPanelQueries;
    const std::int64_t panel_units = head_size_ / kPair * kPanelQueries;
    for (std::int64_t panel = 0; panel < queries_.panels(); ++panel) {
      const std::int64_t first = queries_.panel_begin(panel);
      const std::int64_t last = queries_.panel_end(panel);
      Operands::pack_panel(head_rows<const T>(args_.q, head_, first, last), head_size_,
                           scratch_.queries + panel * panel_units);
      Operands::pack_panel(head_rows<const T>(args_.d_o, head_, first, last), head_size_,
                           scratch_.d_outputs + panel * panel_units);
    }
    Operands::pack_columns(head_rows<const T>(args_.q, head_, queries_.begin, queries_.end), head_size_,
                           padded, scratch_.query_rows);
    Operands::pack_columns(head_rows<const T>(args_.d_o, head_, queries_.begin, queries_.end), head_size_,
                           padded, scratch_.d_output_rows);
    const float* lse = args_.lse.as<float>() + head_ * args_.lse.stride(0) + queries_.begin;
    const float* delta = args_.delta.as<float>() + head_ * args_.delta.stride(0) + queries_.begin;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    // A query that sees nothing, or does not exist, must have weights of 0: 2^(score - infinity).
    for (std::int64_t i = 0; i < padded; ++i) {
      const bool blind = i >= queries_.end - queries_.begin || lse[i] == -kInfinity;
      scratch_.log_sums[i] = blind ? kInfinity : lse[i] * std::numbers::log2e_v<float>;
      scratch_.deltas[i] = blind ? 0.0F : delta[i];
    }
    std::fill_n(scratch_.d_queries, padded * head_size_, 0.0F);
  }

  /// Keys [begin, end) of a block.
  void visit_tile(const KvBlock& block, const KvGradientBlock& gradient, std::int64_t begin,
                  std::int64_t end) {
    const std::int64_t position = block.first_position + begin;
    if (visible_keys(queries_.span(), position, end - begin).empty()) return;
    const std::int64_t padded = (end - begin + kGroupRows - 1) / kGroupRows * kGroupRows;
    const HeadRows<const T> k = head_rows<const T>(block.k, kv_head_, begin, end);
    const HeadRows<const T> v = head_rows<const T>(block.v, kv_head_, begin, end);
    Operands::pack_rows(k, head_size_, padded, scratch_.keys);
    Operands::pack_rows(v, head_size_, padded, scratch_.values);
    if constexpr (kPair > 1) Operands::pack_columns(k, head_size_, padded, scratch_.key_columns);

    std::int64_t first_panel = queries_.panels();  // those that see some of the keys are neighbours
    std::int64_t last_panel = -1;
    for (std::int64_t panel = 0; panel < queries_.panels(); ++panel) {
      const QuerySpan queries = queries_.panel_span(panel);
      const VisibleKeys visible = visible_keys(queries, position, end - begin);
      if (visible.empty()) continue;
      first_panel = std::min(first_panel, panel);
      last_panel = panel;
      clear_outside(panel, visible, padded);
      if (visible.partial)
        visit_panel(panel, visible, PanelMask(queries, position));
      else
        visit_panel(panel, visible, NoMask{});
    }
    if (last_panel < 0) return;
    add_gradients(head_rows<float>(gradient.dk, kv_head_, begin, end), scratch_.d_score_rows,
                  scratch_.query_rows, position, first_panel, last_panel);
    add_gradients(head_rows<float>(gradient.dv, kv_head_, begin, end), scratch_.weight_rows,
                  scratch_.d_output_rows, position, first_panel, last_panel);
  }

  /// Weights of keys that a panel does not see at all are not computed; they are 0 for dK and dV.
  void clear_outside(std::int64_t panel, const VisibleKeys& keys, std::int64_t padded) {
    constexpr std::int64_t kUnits = kPanelQueries / kPair;
    for (std::int64_t j = 0; j < padded; ++j) {
      if (j == keys.begin) j = keys.end;
      if (j >= padded) break;
      const std::int64_t offset = j * weight_stride() + panel * kUnits;
      std::fill_n(scratch_.weight_rows + offset, kUnits, Unit{});
      std::fill_n(scratch_.d_score_rows + offset, kUnits, Unit{});
    }
  }

  template <class Mask>
  void visit_panel(std::int64_t panel, const VisibleKeys& keys, const Mask& mask) {
    const std::int64_t vectors =
        (queries_.panel_end(panel) - queries_.panel_begin(panel) + kVectorLanes - 1) / kVectorLanes;
    const std::int64_t count = keys.end - keys.begin;
    const std::int64_t rows = (count + kGroupRows - 1) / kGroupRows * kGroupRows;
    const std::int64_t stride = packed_stride(head_size_ / kPair);
    const std::int64_t panel_units = head_size_ / kPair * kPanelQueries;
    multiply<Operands, LeftOrder::kRows>({scratch_.keys + keys.begin * stride, stride},
                                         {scratch_.queries + panel * panel_units, kPanelQueries}, rows,
                                         vectors, head_size_ / kPair,
                                         StoreTile{scratch_.weights, kPanelQueries});
    multiply<Operands, LeftOrder::kRows>({scratch_.values + keys.begin * stride, stride},
                                         {scratch_.d_outputs + panel * panel_units, kPanelQueries}, rows,
                                         vectors, head_size_ / kPair,
                                         StoreTile{scratch_.d_scores, kPanelQueries});
    for (std::int64_t v = 0; v < vectors; ++v) weights_and_gradients(panel, v * kVectorLanes, keys, mask);

    const std::int64_t column_stride = packed_stride(head_size_);
    multiply<Operands, LeftOrder::kSteps>(
        {scratch_.key_columns + keys.begin / kPair * column_stride, column_stride},
        {scratch_.d_score_columns, kPanelQueries}, head_size_, vectors, (count + kPair - 1) / kPair,
        AddTile{scratch_.d_queries + panel * head_size_ * kPanelQueries, kPanelQueries});
  }

  /// Scores and dP of one vector of queries -> P and dS.
  template <class Mask>
  HWY_INLINE void weights_and_gradients(std::int64_t panel, std::int64_t query, const VisibleKeys& keys,
                                        const Mask& mask) {
    const FloatTag d;
    const std::int64_t count = keys.end - keys.begin;
    const auto log2_scale = hn::Set(d, log2_scale_);
    const auto scale = hn::Set(d, args_.scale);
    const auto log_sum = hn::Load(d, scratch_.log_sums + panel * kPanelQueries + query);
    const auto delta = hn::Load(d, scratch_.deltas + panel * kPanelQueries + query);
    const std::int64_t column = (panel * kPanelQueries + query) / kPair;
    for (std::int64_t j = 0; j < count; j += kPair) {
      FloatVector d_scores[kPair];
      for (int i = 0; i < kPair; ++i) {
        if (j + i >= count) {
          d_scores[i] = hn::Zero(d);
          continue;
        }
        const std::int64_t from = (j + i) * kPanelQueries + query;
        const std::int64_t to = (keys.begin + j + i) * weight_stride() + column;
        const auto exponent = hn::MulSub(hn::Load(d, scratch_.weights + from), log2_scale, log_sum);
        const auto weight = masked(mask, query, keys.begin + j + i, exp2_of(exponent), hn::Zero(d));
        const auto d_weight = hn::Sub(hn::Load(d, scratch_.d_scores + from), delta);
        d_scores[i] = hn::Mul(hn::Mul(weight, scale), d_weight);
        Operands::store_row(weight, scratch_.weight_rows + to);
        Operands::store_row(d_scores[i], scratch_.d_score_rows + to);
      }
      Operands::store_steps(d_scores, scratch_.d_score_columns + j / kPair * kPanelQueries + query);
    }
  }

  /// gradient += left · right over the queries of the panels [first_panel, last_panel].
  void add_gradients(const HeadRows<float>& gradient, const Unit* left, const Unit* right,
                     std::int64_t position, std::int64_t first_panel, std::int64_t last_panel) {
    const std::int64_t first = queries_.panel_begin(first_panel);
    const std::int64_t steps = (queries_.panel_end(last_panel) - first + kPair - 1) / kPair;
    const std::int64_t skipped = (first - queries_.begin) / kPair;
    const std::int64_t stride = packed_stride(head_size_);
    multiply<Operands, LeftOrder::kRows>(
        {left + skipped, weight_stride()}, {right + skipped * stride, stride},
        (gradient.count + kGroupRows - 1) / kGroupRows * kGroupRows,
        (head_size_ + kVectorLanes - 1) / kVectorLanes, steps,
        AddToGradient{gradient, head_size_, position - (args_.query_position + first), kPair});
  }

  void store_queries() {
    alignas(64) float ones[kPanelQueries];
    std::fill_n(ones, kPanelQueries, 1.0F);
    for (std::int64_t panel = 0; panel < queries_.panels(); ++panel)
      unpack_panel(scratch_.d_queries + panel * head_size_ * kPanelQueries, ones, head_size_,
                   head_rows<float>(args_.dq, head_, queries_.panel_begin(panel), queries_.panel_end(panel)));
  }

  const AttentionBackward& args_;
  const std::int64_t kv_head_;
  const std::int64_t heads_per_kv_head_;
  const std::int64_t head_size_;
  const std::int64_t block_;
  const float log2_scale_;
  const BackwardScratch<Unit, kPair> scratch_;
  QueryBlock queries_;     ///< what scratch holds, and
  std::int64_t head_ = 0;  ///< of which query head
};

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
