#include "runtime/key_ranges.h"

#include <algorithm>

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

std::vector<KeyRange> without(KeyRange all, std::vector<KeyRange> given) {
  std::ranges::sort(given, {}, &KeyRange::begin);
  std::vector<KeyRange> kept;
  std::int64_t next = all.begin;
  const auto keep_until = [&](std::int64_t end) {
    if (end > next) kept.push_back({next, end});
  };
  for (const KeyRange& range : given) {
    SLIMPIPE_CHECK(range.begin >= next && range.end <= all.end, "keys {} to {} are not among {} to {}",
                   range.begin, range.end, next, all.end);
    keep_until(range.begin);
    next = range.end;
  }
  keep_until(all.end);
  return kept;
}

std::vector<BlockRows> rows_of(std::span<const device::KvBlock> blocks, KeyRange range) {
  std::vector<BlockRows> rows;
  std::int64_t found = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::int64_t first = blocks[i].first_position;
    const std::int64_t begin = std::max(range.begin, first);
    const std::int64_t end = std::min(range.end, first + blocks[i].k.dim(0));
    if (begin >= end) continue;
    rows.push_back({i, begin - first, end - first});
    found += end - begin;
  }
  SLIMPIPE_CHECK(found == range.end - range.begin, "{} of the keys {} to {} are in K,V blocks", found,
                 range.begin, range.end);
  return rows;
}

device::KvBlock part_of(const device::KvBlock& block, const BlockRows& rows) {
  return {block.k.rows(rows.begin, rows.end), block.v.rows(rows.begin, rows.end),
          block.first_position + rows.begin};
}

device::KvGradientBlock part_of(const device::KvGradientBlock& block, const BlockRows& rows) {
  return {block.dk.rows(rows.begin, rows.end), block.dv.rows(rows.begin, rows.end)};
}

}  // namespace slimpipe::runtime
