// Attention's forward of one block of queries of one head.
//
// Compiled once for each instruction set (Highway's foreach_target.h), hence the unusual guard.
#if defined(SLIMPIPE_DEVICE_CPU_ATTENTION_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIMPIPE_DEVICE_CPU_ATTENTION_FORWARD_INL_H_
#undef SLIMPIPE_DEVICE_CPU_ATTENTION_FORWARD_INL_H_
#else
#define SLIMPIPE_DEVICE_CPU_ATTENTION_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
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

template <class T, class Operands>
class ForwardBlock {
 public:
  using Unit = typename Operands::Unit;
  static constexpr int kPair = Operands::kPair;

  /// Queries [begin, end) of `head`, at most block_queries(D).
  ForwardBlock(const AttentionForward& args, std::int64_t head, std::int64_t begin, std::int64_t end,
               std::byte* memory)
      : args_(args),
        head_(head),
        kv_head_(args.blocks.empty() ? 0 : head / (args.q.dim(1) / args.blocks[0].k.dim(1))),
        head_size_(args.q.dim(2)),
        log2_scale_(args.scale * std::numbers::log2e_v<float>),
        scratch_(memory, head_size_),
        queries_{begin, end, args.query_position, scratch_.document_starts} {}

  void run() {
    load_queries();
    for (const KvBlock& block : args_.blocks)
      for (std::int64_t key = 0; key < block.k.dim(0); key += kForwardKeys)
        visit_tile(block, key, std::min(block.k.dim(0), key + kForwardKeys));
    for (std::int64_t panel = 0; panel < queries_.panels(); ++panel) store_panel(panel);
  }

 private:
  void load_queries() {
    find_document_starts(args_.document_starts, queries_.span().position, queries_.span().count,
                         scratch_.document_starts);
    for (std::int64_t panel = 0; panel < queries_.panels(); ++panel)
      Operands::pack_panel(
          head_rows<const T>(args_.q, head_, queries_.panel_begin(panel), queries_.panel_end(panel)),
          head_size_, scratch_.queries + panel * head_size_ / kPair * kPanelQueries);
    const std::int64_t queries = queries_.panels() * kPanelQueries;
    std::fill_n(scratch_.outputs, queries * head_size_, 0.0F);
    // Finite, so that the difference of two maxima is never infinity minus infinity.
    std::fill_n(scratch_.maxima, queries, std::numeric_limits<float>::lowest());
    std::fill_n(scratch_.sums, queries, 0.0F);
  }

  /// Keys [begin, end) of a block, for every panel that sees some of them.
  void visit_tile(const KvBlock& block, std::int64_t begin, std::int64_t end) {
    const std::int64_t position = block.first_position + begin;
    if (visible_keys(queries_.span(), position, end - begin).empty()) return;
    const std::int64_t padded = (end - begin + kGroupRows - 1) / kGroupRows * kGroupRows;
    Operands::pack_rows(head_rows<const T>(block.k, kv_head_, begin, end), head_size_, padded, scratch_.keys);
    Operands::pack_columns(head_rows<const T>(block.v, kv_head_, begin, end), head_size_, padded,
                           scratch_.values);
    for (std::int64_t panel = 0; panel < queries_.panels(); ++panel) {
      const QuerySpan queries = queries_.panel_span(panel);
      const VisibleKeys visible = visible_keys(queries, position, end - begin);
      if (visible.empty()) continue;
      if (visible.partial)
        visit_panel(panel, visible, PanelMask(queries, position));
      else
        visit_panel(panel, visible, NoMask{});
    }
  }

  template <class Mask>
  void visit_panel(std::int64_t panel, const VisibleKeys& keys, const Mask& mask) {
    const std::int64_t vectors =
        (queries_.panel_end(panel) - queries_.panel_begin(panel) + kVectorLanes - 1) / kVectorLanes;
    const std::int64_t count = keys.end - keys.begin;
    const std::int64_t key_stride = packed_stride(head_size_ / kPair);
    multiply<Operands, LeftOrder::kRows>(
        {scratch_.keys + keys.begin * key_stride, key_stride},
        {scratch_.queries + panel * head_size_ / kPair * kPanelQueries, kPanelQueries},
        (count + kGroupRows - 1) / kGroupRows * kGroupRows, vectors, head_size_ / kPair,
        StoreTile{scratch_.scores, kPanelQueries});

    alignas(64) float factors[kPanelQueries];
    for (std::int64_t v = 0; v < vectors; ++v)
      softmax(panel, v * kVectorLanes, keys, mask, factors + v * kVectorLanes);

    const std::int64_t value_stride = packed_stride(head_size_);
    multiply<Operands, LeftOrder::kSteps>(
        {scratch_.values + keys.begin / kPair * value_stride, value_stride},
        {scratch_.weights, kPanelQueries}, head_size_, vectors, (count + kPair - 1) / kPair,
        RescaleAndAddTile{scratch_.outputs + panel * head_size_ * kPanelQueries, kPanelQueries, factors});
  }

  /// Scores of one vector of queries -> weights 2^(score - maximum), the running maximum and sum, and the
  /// factor that brings what was summed before to the new maximum.
  template <class Mask>
  HWY_INLINE void softmax(std::int64_t panel, std::int64_t query, const VisibleKeys& keys, const Mask& mask,
                          float* factor) {
    const FloatTag d;
    const std::int64_t count = keys.end - keys.begin;
    float* maxima = scratch_.maxima + panel * kPanelQueries + query;
    float* sums = scratch_.sums + panel * kPanelQueries + query;
    const float* scores = scratch_.scores + query;
    const auto scale = hn::Set(d, log2_scale_);
    const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());

    const auto old_maximum = hn::Load(d, maxima);
    auto maximum = old_maximum;
    for (std::int64_t j = 0; j < count; ++j) {
      const auto score = hn::Mul(hn::Load(d, scores + j * kPanelQueries), scale);
      maximum = hn::Max(maximum, masked(mask, query, keys.begin + j, score, hidden));
    }
    const auto rescale = exp2_of(hn::Sub(old_maximum, maximum));
    auto sum = hn::Mul(hn::Load(d, sums), rescale);
    for (std::int64_t j = 0; j < count; j += kPair) {
      FloatVector weights[kPair];
      for (int i = 0; i < kPair; ++i) {
        if (j + i >= count) {
          weights[i] = hn::Zero(d);
          continue;
        }
        const auto exponent = hn::MulSub(hn::Load(d, scores + (j + i) * kPanelQueries), scale, maximum);
        weights[i] = masked(mask, query, keys.begin + j + i, exp2_of(exponent), hn::Zero(d));
        sum = hn::Add(sum, weights[i]);
      }
      Operands::store_steps(weights, scratch_.weights + j / kPair * kPanelQueries + query);
    }
    hn::Store(maximum, d, maxima);
    hn::Store(sum, d, sums);
    hn::Store(rescale, d, factor);
  }

  void store_panel(std::int64_t panel) {
    alignas(64) float factors[kPanelQueries];
    const float* maxima = scratch_.maxima + panel * kPanelQueries;
    const float* sums = scratch_.sums + panel * kPanelQueries;
    const HeadRows<T> rows =
        head_rows<T>(args_.o, head_, queries_.panel_begin(panel), queries_.panel_end(panel));
    float* lse = args_.lse.as<float>() + head_ * args_.lse.stride(0) + queries_.panel_begin(panel);
    for (std::int64_t i = 0; i < rows.count; ++i) {
      // A query that saw a key has a sum of about 1 or more, from its largest score, or it is NaN.
      const bool blind = sums[i] == 0.0F;
      factors[i] = blind ? 0.0F : 1.0F / sums[i];
      lse[i] = blind ? -std::numeric_limits<float>::infinity()
                     : static_cast<float>(static_cast<double>(maxima[i]) * std::numbers::ln2 +
                                          std::log(static_cast<double>(sums[i])));
    }
    unpack_panel(scratch_.outputs + panel * head_size_ * kPanelQueries, factors, head_size_, rows);
  }

  const AttentionForward& args_;
  const std::int64_t head_;
  const std::int64_t kv_head_;
  const std::int64_t head_size_;
  const float log2_scale_;
  const ForwardScratch<Unit, kPair> scratch_;
  const QueryBlock queries_;
};

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
