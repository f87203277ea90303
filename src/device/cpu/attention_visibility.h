#pragma once
// Which keys a query sees: those at positions from its document's start up to its own. Positions are those
// of the sequence; a tile of keys is an interval of them.

#include <algorithm>
#include <cstdint>
#include <span>

#include "device/cpu/attention_layout.h"

namespace slimpipe::device::cpu {

/// starts[i] = position of the first key that the query at first_position + i may see.
inline void find_document_starts(std::span<const std::int64_t> document_starts, std::int64_t first_position,
                                 std::int64_t count, std::int64_t* starts) {
  auto next = std::upper_bound(document_starts.begin(), document_starts.end(), first_position);
  for (std::int64_t i = 0; i < count; ++i) {
    while (next != document_starts.end() && *next <= first_position + i) ++next;
    // Before the first start nothing bounds a query from below.
    starts[i] = next == document_starts.begin() ? 0 : *(next - 1);
  }
}

/// Queries at neighbouring positions: `count` of them, the first at `position`.
struct QuerySpan {
  std::int64_t position;
  std::int64_t count;
  const std::int64_t* document_starts;  ///< [count], ascending

  [[nodiscard]] std::int64_t last_position() const { return position + count - 1; }
};

/// Rows [begin, end) of q, the queries of one work item, and their panels.
struct QueryBlock {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first_position;          ///< of row 0 of q
  const std::int64_t* document_starts;  ///< [end - begin]

  [[nodiscard]] std::int64_t panels() const { return (end - begin + kPanelQueries - 1) / kPanelQueries; }
  [[nodiscard]] std::int64_t panel_begin(std::int64_t panel) const { return begin + panel * kPanelQueries; }
  [[nodiscard]] std::int64_t panel_end(std::int64_t panel) const {
    return std::min(end, panel_begin(panel) + kPanelQueries);
  }
  [[nodiscard]] QuerySpan span() const { return {first_position + begin, end - begin, document_starts}; }
  [[nodiscard]] QuerySpan panel_span(std::int64_t panel) const {
    const std::int64_t first = panel_begin(panel);
    return {first_position + first, panel_end(panel) - first, document_starts + (first - begin)};
  }
};

/// Keys [begin, end) of a tile, which holds every key that any query of a span sees; empty if none.
struct VisibleKeys {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool partial = false;  ///< some query does not see some of them

  [[nodiscard]] bool empty() const { return begin >= end; }
};

/// Of a tile of `keys` keys from position `first_key`. `begin` is a multiple of kGroupRows.
inline VisibleKeys visible_keys(const QuerySpan& queries, std::int64_t first_key, std::int64_t keys) {
  VisibleKeys visible;
  const std::int64_t first_seen = std::max<std::int64_t>(queries.document_starts[0] - first_key, 0);
  visible.begin = first_seen / kGroupRows * kGroupRows;
  visible.end = std::min(keys, queries.last_position() + 1 - first_key);
  if (first_seen >= visible.end) return {};
  visible.partial = first_key + visible.end - 1 > queries.position ||
                    first_key + visible.begin < queries.document_starts[queries.count - 1];
  return visible;
}

}  // namespace slimpipe::device::cpu
