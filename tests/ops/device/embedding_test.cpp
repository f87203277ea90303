#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

TEST_CASE("embedding picks the rows of the table", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t hidden : {1, 17, 65, 1000}) {
      const OwnedTensor table = normal(dtype, {11, hidden}, 1);
      const OwnedTensor tokens = integers({7}, 2, 0, 11);
      const OwnedTensor y(dtype, {7, hidden});
      device.operators().embedding_forward(device.stream(), tokens, table, y);
      const Values rows = values_of(table);
      Values expected;
      for (std::int64_t t = 0; t < 7; ++t)
        for (std::int64_t i = 0; i < hidden; ++i)
          expected.push_back(rows[at(static_cast<std::int64_t>(load_element(tokens, t)), hidden, i)]);
      CHECK(values_of(y) == expected);
      CHECK(y.intact());
    }
}

TEST_CASE("the gradient of embedding adds up over repeated tokens", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t hidden : {1, 17, 65, 1000}) {
      const OwnedTensor tokens = integers({40}, 2, 0, 5);
      const OwnedTensor dy = normal(dtype, {40, hidden}, 3);
      const OwnedTensor d_table = constant(DType::kF32, {6, hidden}, 0.5);
      Values expected = values_of(d_table);
      const Values gradient = values_of(dy);
      for (std::int64_t t = 0; t < 40; ++t)
        for (std::int64_t i = 0; i < hidden; ++i)
          expected[at(static_cast<std::int64_t>(load_element(tokens, t)), hidden, i)] +=
              gradient[at(t, hidden, i)];
      device.operators().embedding_backward(device.stream(), tokens, dy, d_table);
      CHECK(compare(d_table, expected, 1, 4) == kAgrees);
      CHECK(d_table.intact());
    }
}

TEST_CASE("a token outside the vocabulary is refused before anything is written", "[ops]") {
  CpuDevice device;
  const OwnedTensor table = normal(DType::kF32, {4, 3}, 1);
  for (const double wrong : {4.0, -1.0}) {
    OwnedTensor tokens(DType::kI32, {2});
    fill_values(tokens, {0, wrong});
    const OwnedTensor y = constant(DType::kF32, {2, 3}, 9.0);
    CHECK_THROWS_AS(device.operators().embedding_forward(device.stream(), tokens, table, y), Error);
    CHECK(values_of(y) == Values(6, 9.0));
    const OwnedTensor d_table = constant(DType::kF32, {4, 3}, 9.0);
    CHECK_THROWS_AS(device.operators().embedding_backward(device.stream(), tokens, y, d_table), Error);
    CHECK(values_of(d_table) == Values(12, 9.0));
  }
}

}  // namespace slimpipe::device
