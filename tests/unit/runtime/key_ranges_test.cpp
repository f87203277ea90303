#include "runtime/key_ranges.h"

#include "slimpipe/core/check.h"

#include "support/catch.h"

namespace slimpipe::runtime {

TEST_CASE("what is kept of a range is between what is given, in order", "[unit]") {
  using Ranges = std::vector<KeyRange>;
  CHECK(without({0, 10}, {}) == Ranges{{0, 10}});
  CHECK(without({0, 10}, {{6, 8}, {2, 5}}) == Ranges{{0, 2}, {5, 6}, {8, 10}});
  CHECK(without({0, 10}, {{0, 4}, {4, 10}}).empty());
  CHECK(without({0, 0}, {}).empty());
  CHECK_THROWS_AS(without({0, 10}, {{2, 5}, {4, 6}}), Error);
  CHECK_THROWS_AS(without({0, 10}, {{8, 11}}), Error);
}

TEST_CASE("a range of keys is found in the blocks that hold it", "[unit]") {
  const auto block = [](std::int64_t first, std::int64_t tokens) {
    const Tensor shape(nullptr, DType::kF32, {tokens, 1, 8});
    return device::KvBlock{shape, shape, first};
  };
  const std::vector<device::KvBlock> blocks{block(0, 4), block(4, 4), block(8, 3)};
  using Rows = std::vector<BlockRows>;
  CHECK(rows_of(blocks, {0, 11}) == Rows{{0, 0, 4}, {1, 0, 4}, {2, 0, 3}});
  CHECK(rows_of(blocks, {3, 9}) == Rows{{0, 3, 4}, {1, 0, 4}, {2, 0, 1}});
  CHECK(rows_of(blocks, {5, 7}) == Rows{{1, 1, 3}});
  CHECK(rows_of(blocks, {4, 4}).empty());
  CHECK_THROWS_WITH(rows_of(blocks, {9, 12}), test::contains("2 of the keys 9 to 12 are in K,V blocks"));
  const device::KvBlock part = part_of(blocks[1], {1, 1, 3});
  CHECK(part.first_position == 5);
  CHECK(part.k.dim(0) == 2);
}

}  // namespace slimpipe::runtime
