#pragma once
// Ranges of a sequence's keys over the K,V blocks of its slices.

#include <cstdint>
#include <span>
#include <vector>

#include "slimpipe/device/operators.h"

namespace slimpipe::runtime {

/// Positions [begin, end).
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const KeyRange&) const = default;
};

/// [begin, end) without the `given` ranges, which lie in it and do not overlap; ascending, none empty.
[[nodiscard]] std::vector<KeyRange> without(KeyRange all, std::vector<KeyRange> given);

/// Rows of the block `blocks[index]`.
struct BlockRows {
  std::size_t index = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const BlockRows&) const = default;
};
/// Where the range lies in `blocks`, which ascend and leave no gap in it. Throws Error where they do not
/// reach.
[[nodiscard]] std::vector<BlockRows> rows_of(std::span<const device::KvBlock> blocks, KeyRange range);

[[nodiscard]] device::KvBlock part_of(const device::KvBlock& block, const BlockRows& rows);
[[nodiscard]] device::KvGradientBlock part_of(const device::KvGradientBlock& block, const BlockRows& rows);

}  // namespace slimpipe::runtime
