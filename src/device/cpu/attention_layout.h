#pragma once
// Tile sizes of attention on the CPU and the scratch memory of one work item.
//
// Scores are kept transposed, keys down and queries across: a vector register holds one key and as many
// queries as it has lanes, so the row sums and maxima of the softmax are plain vector operations, and every
// product has a left operand read one element at a time (broadcast) and a right operand read in vectors.
// Queries come in panels, the unit of a vectorised row; a block of panels shares each packed tile of keys.

#include <cstddef>
#include <cstdint>

namespace slimpipe::device::cpu {

inline constexpr std::int64_t kPanelQueries =
    48;                                        ///< three AVX-512 vectors, with eight rows: 24 accumulators
inline constexpr std::int64_t kGroupRows = 8;  ///< rows of a product are padded to this
inline constexpr std::int64_t kForwardKeys = 128;  ///< keys a tile; scores of a panel take 24 KiB, within L1
inline constexpr std::int64_t kBackwardKeys = 64;  ///< fewer: two score tiles are live, for all panels
inline constexpr std::int64_t kMaxHeadSize = 256;
inline constexpr std::int64_t kLineElements = 16;  ///< four-byte elements of a cache line, widest vector

static_assert(kPanelQueries % kLineElements == 0 && kForwardKeys % kGroupRows == 0 &&
              kBackwardKeys % kGroupRows == 0);

/// Panels that share a packed tile of keys. Keys, and in the backward their gradients, pass through the
/// caches once a block; with this many panels that costs little, and what a block keeps still fits an L2
/// cache.
constexpr std::int64_t panels_per_block(std::int64_t head_size) {
  return head_size <= 128 ? 8 : 4;
}
constexpr std::int64_t block_queries(std::int64_t head_size) {
  return panels_per_block(head_size) * kPanelQueries;
}

/// Elements between rows of a packed matrix: an odd number of cache lines, because rows a power of two apart
/// would compete for a few sets of the L1 cache.
constexpr std::int64_t packed_stride(std::int64_t columns) {
  return ((columns + kLineElements - 1) / kLineElements | 1) * kLineElements;
}

/// Cuts aligned arrays from a piece of memory, or, from none, counts what they would take.
class ScratchCutter {
 public:
  explicit ScratchCutter(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* begin = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + kAlign - 1) / kAlign * kAlign;
    return reinterpret_cast<T*>(begin);
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kAlign = 64;
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

// Below, a Unit is what one step of a product takes of each operand: an fp32 value (kPair = 1), or two bf16
// values that are neighbours along the summed dimension (kPair = 2).

template <class Unit, int kPair>
struct ForwardScratch {
  Unit* queries;                  ///< [panels][D / kPair][48]
  Unit* keys;                     ///< [128 keys][D / kPair], padded rows
  Unit* values;                   ///< [128 / kPair keys][D], padded rows
  float* scores;                  ///< [128 keys][48] of one panel
  Unit* weights;                  ///< [128 / kPair keys][48]; the scores' memory where a unit is fp32
  float* outputs;                 ///< [panels][D][48], not yet normalised
  float* maxima;                  ///< [panels][48], in units of log2
  float* sums;                    ///< [panels][48]
  std::int64_t* document_starts;  ///< [block], position of the first key that a query sees
  std::int64_t bytes;

  ForwardScratch(std::byte* memory, std::int64_t head_size) {
    ScratchCutter cutter(memory);
    const std::int64_t panels = panels_per_block(head_size);
    queries = cutter.take<Unit>(panels * head_size / kPair * kPanelQueries);
    keys = cutter.take<Unit>(kForwardKeys * packed_stride(head_size / kPair));
    values = cutter.take<Unit>(kForwardKeys / kPair * packed_stride(head_size));
    scores = cutter.take<float>(kForwardKeys * kPanelQueries);
    weights = reinterpret_cast<Unit*>(scores);
    if constexpr (kPair > 1) weights = cutter.take<Unit>(kForwardKeys / kPair * kPanelQueries);
    outputs = cutter.take<float>(panels * head_size * kPanelQueries);
    maxima = cutter.take<float>(panels * kPanelQueries);
    sums = cutter.take<float>(panels * kPanelQueries);
    document_starts = cutter.take<std::int64_t>(panels * kPanelQueries);
    bytes = cutter.bytes();
  }
};

template <class Unit, int kPair>
struct BackwardScratch {
  Unit* queries;                  ///< [panels][D / kPair][48], for the scores
  Unit* d_outputs;                ///< [panels][D / kPair][48], for the scores' gradient
  Unit* query_rows;               ///< [block / kPair queries][D], padded rows, for dK
  Unit* d_output_rows;            ///< [block / kPair queries][D], padded rows, for dV
  Unit* keys;                     ///< [64 keys][D / kPair], padded rows
  Unit* values;                   ///< [64 keys][D / kPair], padded rows
  Unit* key_columns;              ///< [64 / kPair keys][D], padded rows, for dQ; `keys` where a unit is fp32
  float* weights;                 ///< [64 keys][48] of one panel
  float* d_scores;                ///< [64 keys][48] of one panel
  Unit* weight_rows;              ///< [64 keys][block / kPair queries], padded rows
  Unit* d_score_rows;             ///< [64 keys][block / kPair queries], padded rows
  Unit* d_score_columns;          ///< [64 / kPair keys][48] of one panel, for dQ
  float* d_queries;               ///< [panels][D][48]
  float* log_sums;                ///< [block], in units of log2; +inf for a query that sees nothing
  float* deltas;                  ///< [block]
  std::int64_t* document_starts;  ///< [block], position of the first key that a query sees
  std::int64_t bytes;

  BackwardScratch(std::byte* memory, std::int64_t head_size) {
    ScratchCutter cutter(memory);
    const std::int64_t block = block_queries(head_size);
    queries = cutter.take<Unit>(block * head_size / kPair);
    d_outputs = cutter.take<Unit>(block * head_size / kPair);
    query_rows = cutter.take<Unit>(block / kPair * packed_stride(head_size));
    d_output_rows = cutter.take<Unit>(block / kPair * packed_stride(head_size));
    keys = cutter.take<Unit>(kBackwardKeys * packed_stride(head_size / kPair));
    values = cutter.take<Unit>(kBackwardKeys * packed_stride(head_size / kPair));
    key_columns = kPair == 1 ? keys : cutter.take<Unit>(kBackwardKeys / kPair * packed_stride(head_size));
    weights = cutter.take<float>(kBackwardKeys * kPanelQueries);
    d_scores = cutter.take<float>(kBackwardKeys * kPanelQueries);
    weight_rows = cutter.take<Unit>(kBackwardKeys * packed_stride(block / kPair));
    d_score_rows = cutter.take<Unit>(kBackwardKeys * packed_stride(block / kPair));
    d_score_columns = cutter.take<Unit>(kBackwardKeys / kPair * kPanelQueries);
    d_queries = cutter.take<float>(block * head_size);
    log_sums = cutter.take<float>(block);
    deltas = cutter.take<float>(block);
    document_starts = cutter.take<std::int64_t>(block);
    bytes = cutter.bytes();
  }
};

}  // namespace slimpipe::device::cpu
