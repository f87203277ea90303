#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

constexpr float kScale = 0.25F;

std::vector<std::int64_t> integers_of(const Tensor& tensor) {
  std::vector<std::int64_t> result;
  for (const double value : values_of(tensor)) result.push_back(static_cast<std::int64_t>(value));
  return result;
}

OwnedTensor targets_of(const Values& values) {
  OwnedTensor result(DType::kI32, {std::ssize(values)});
  fill_values(result, values);
  return result;
}

}  // namespace

TEST_CASE("cross-entropy and its gradient agree with double precision", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t vocabulary : {1, 3, 17, 63, 65, 1000, 9001})
      for (const std::int64_t tokens : {1, 5, 67})
        for (const bool in_place : {false, true}) {
          if (in_place && dtype == DType::kBF16) continue;
          INFO(name_of(dtype) << " [" << tokens << ", " << vocabulary << "] in place " << in_place);
          const OwnedTensor logits = normal(DType::kF32, {tokens, vocabulary}, 1, 3.0);
          const OwnedTensor targets = integers({tokens}, 2, -1, vocabulary);
          const CrossEntropyResult expected =
              reference_cross_entropy(values_of(logits), integers_of(targets), double{kScale});
          const OwnedTensor separate(dtype, {tokens, vocabulary});
          const Tensor d_logits = in_place ? logits.view() : separate.view();
          const OwnedTensor loss = constant(DType::kF64, {1}, 10.0);
          device.operators().cross_entropy(device.stream(), logits, targets, kScale, loss, d_logits);
          CHECK(compare(d_logits, expected.d_logits) == kAgrees);
          CHECK(compare(loss, {10 + expected.loss}) == kAgrees);
          CHECK((logits.intact() && separate.intact()));
        }
}

TEST_CASE("the loss alone is the loss with a gradient", "[ops]") {
  CpuDevice device;
  const OwnedTensor logits = normal(DType::kF32, {70, 65}, 1);
  const OwnedTensor targets = integers({70}, 2, 0, 65);
  const OwnedTensor alone = constant(DType::kF64, {1}, 0.0);
  const OwnedTensor both = constant(DType::kF64, {1}, 0.0);
  const OwnedTensor d_logits(DType::kF32, {70, 65});
  device.operators().cross_entropy(device.stream(), logits, targets, kScale, alone, Tensor());
  device.operators().cross_entropy(device.stream(), logits, targets, kScale, both, d_logits);
  CHECK(alone.bytes() == both.bytes());
}

TEST_CASE("the gradient of cross-entropy is the derivative of the loss", "[ops]") {
  CpuDevice device;
  const OwnedTensor logits = normal(DType::kF32, {3, 17}, 1);
  const OwnedTensor targets = targets_of({4, -1, 16});
  const OwnedTensor loss = constant(DType::kF64, {1}, 0.0);
  const OwnedTensor d_logits(DType::kF32, {3, 17});
  device.operators().cross_entropy(device.stream(), logits, targets, 1.0F, loss, d_logits);
  CHECK(compare(d_logits,
                numeric_gradient(
                    [&](const Values& x) { return reference_cross_entropy(x, integers_of(targets), 1).loss; },
                    values_of(logits))) == kAgrees);
}

TEST_CASE("huge logits neither overflow nor lose the loss", "[ops]") {
  CpuDevice device;
  OwnedTensor logits(DType::kF32, {3, 3});
  fill_values(logits, {1e4, 1e4 - 1, -1e4, 3e38, -3e38, 0, -1e30, -1e30, -1e30});
  const OwnedTensor targets = targets_of({1, 0, 2});
  const OwnedTensor loss = constant(DType::kF64, {1}, 0.0);
  const OwnedTensor d_logits(DType::kF32, {3, 3});
  device.operators().cross_entropy(device.stream(), logits, targets, 1.0F, loss, d_logits);
  const CrossEntropyResult expected = reference_cross_entropy(values_of(logits), integers_of(targets), 1);
  CHECK(std::isfinite(expected.loss));
  CHECK(compare(loss, {expected.loss}) == kAgrees);
  CHECK(compare(d_logits, expected.d_logits) == kAgrees);
}

TEST_CASE("NaN in ignored rows does not reach the loss or the gradient", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const OwnedTensor logits(DType::kF32, {4, 33});  // all NaN
    const OwnedTensor targets = targets_of({-1, -100, -1, -1});
    const OwnedTensor loss = constant(DType::kF64, {1}, 2.0);
    const OwnedTensor d_logits(dtype, {4, 33});
    device.operators().cross_entropy(device.stream(), logits, targets, kScale, loss, d_logits);
    CHECK(load_element(loss, 0) == 2.0);
    CHECK(values_of(d_logits) == Values(4 * 33, 0.0));
  }
}

TEST_CASE("NaN or infinity in a row that counts shows in the loss", "[ops]") {
  CpuDevice device;
  for (const double wrong :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const std::int64_t column : {0, 15, 31, 32}) {
      const OwnedTensor logits = normal(DType::kF32, {1, 33}, 1);
      store_element(logits, column, wrong);
      const OwnedTensor loss = constant(DType::kF64, {1}, 0.0);
      device.operators().cross_entropy(device.stream(), logits, targets_of({7}), kScale, loss, Tensor());
      CHECK_FALSE(std::isfinite(load_element(loss, 0)));
    }
}

TEST_CASE("a target outside the vocabulary is refused before anything is written", "[ops]") {
  CpuDevice device;
  const OwnedTensor logits = constant(DType::kF32, {2, 3}, 1.0);
  const OwnedTensor loss = constant(DType::kF64, {1}, 0.0);
  CHECK_THROWS_AS(
      device.operators().cross_entropy(device.stream(), logits, targets_of({0, 3}), kScale, loss, logits),
      Error);
  CHECK(values_of(logits) == Values(6, 1.0));
  CHECK(load_element(loss, 0) == 0.0);
}

TEST_CASE("the loss does not depend on the number of threads", "[ops]") {
  CpuDevice one;
  CpuDevice two(2);
  const OwnedTensor logits = normal(DType::kF32, {300, 65}, 1);
  const OwnedTensor targets = integers({300}, 2, -1, 65);
  const OwnedTensor first = constant(DType::kF64, {1}, 0.0);
  const OwnedTensor second = constant(DType::kF64, {1}, 0.0);
  one.operators().cross_entropy(one.stream(), logits, targets, kScale, first, Tensor());
  two.operators().cross_entropy(two.stream(), logits, targets, kScale, second, Tensor());
  CHECK(first.bytes() == second.bytes());
}

}  // namespace slimpipe::device
