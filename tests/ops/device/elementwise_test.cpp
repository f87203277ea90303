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

constexpr std::int64_t kSizes[] = {1, 3, 15, 16, 17, 63, 65, 1000, 40000};

OwnedTensor strided(DType dtype, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  OwnedTensor result = OwnedTensor::padded(dtype, rows, columns, columns + 7);
  fill_normal(result, seed);
  return result;
}

}  // namespace

TEST_CASE("copying converts every value as BFloat16 does, NaN and infinity too", "[ops]") {
  CpuDevice device;
  Values values;
  for (const double special :
       {0.0, -0.0, 1.0, 3.4028234e38, -3.4028234e38, 1e-45, 1e-39, 1.00390625, 1.01171875})
    values.push_back(special);
  for (const double sign : {1.0, -1.0}) {
    values.push_back(sign * std::numeric_limits<double>::infinity());
    values.push_back(sign * std::numeric_limits<double>::quiet_NaN());
  }
  for (std::uint64_t i = 0; i < 500; ++i)
    values.push_back(random_normal(1, test_stream(), i) * std::pow(10.0, static_cast<double>(i % 60) - 30));
  const auto n = std::ssize(values);
  OwnedTensor wide(DType::kF32, {n});
  fill_values(wide, values);
  const OwnedTensor narrow(DType::kBF16, {n});
  device.operators().copy(device.stream(), wide, narrow);
  for (std::int64_t i = 0; i < n; ++i) {
    INFO(values[static_cast<std::size_t>(i)]);
    CHECK(narrow.view().as<BFloat16>()[i].bits == BFloat16(wide.view().as<float>()[i]).bits);
  }
  const OwnedTensor back(DType::kF32, {n});
  device.operators().copy(device.stream(), narrow, back);
  for (std::int64_t i = 0; i < n; ++i)
    CHECK(std::bit_cast<std::uint32_t>(back.view().as<float>()[i]) ==
          std::bit_cast<std::uint32_t>(static_cast<float>(narrow.view().as<BFloat16>()[i])));
}

TEST_CASE("copying takes any size, and matrices with gaps between rows", "[ops]") {
  CpuDevice device;
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
  for (const std::int64_t n : kSizes)
    for (const DType from : kTypes)
      for (const DType to : kTypes) {
        INFO(n << " " << name_of(from) << " to " << name_of(to));
        const OwnedTensor x = strided(from, 3, n, 1);
        const OwnedTensor y(to, {3, n});
        const OwnedTensor gaps = OwnedTensor::padded(to, 3, n, n + 2);
        device.operators().copy(device.stream(), x, y);
        device.operators().copy(device.stream(), y, gaps);
        Values expected = values_of(x);
        for (double& value : expected) value = rounded_to(to, value);
        CHECK(values_of(y) == expected);
        CHECK(values_of(gaps) == expected);
        CHECK((y.intact() && gaps.intact()));
      }
  const OwnedTensor tokens = integers({2, 5, 3}, 1, 0, 1000);
  const OwnedTensor same(DType::kI32, {2, 5, 3});
  device.operators().copy(device.stream(), tokens, same);
  CHECK(values_of(same) == values_of(tokens));
}

TEST_CASE("addition agrees with double precision, in place too", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t n : kSizes)
      for (const int alias : {0, 1, 2}) {
        INFO(name_of(dtype) << " " << n << " alias " << alias);
        const OwnedTensor a = strided(dtype, 2, n, 1);
        const OwnedTensor b = normal(dtype, {2, n}, 2);
        const OwnedTensor separate(dtype, {2, n});
        Values expected = values_of(a);
        const Values other = values_of(b);
        for (std::size_t i = 0; i < other.size(); ++i) expected[i] += other[i];
        const Tensor y = alias == 0 ? separate.view() : alias == 1 ? a.view() : b.view();
        device.operators().add(device.stream(), a, b, y);
        CHECK(compare(y, expected) == kAgrees);
        CHECK((a.intact() && b.intact() && separate.intact()));
      }
}

TEST_CASE("zeroing clears a matrix and not the gaps between its rows", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32}) {
    const OwnedTensor wide = constant(dtype, {3, 20}, 7);
    device.operators().zero(device.stream(), wide.view().columns(1, 18));
    for (std::int64_t i = 0; i < 60; ++i)
      CHECK(load_element(wide, i) == (i % 20 >= 1 && i % 20 < 18 ? 0.0 : 7.0));
    device.operators().zero(device.stream(), wide);
    CHECK(values_of(wide) == Values(60, 0.0));
  }
}

TEST_CASE("the sum of squares agrees with double precision", "[ops]") {
  CpuDevice device;
  for (const std::int64_t n : kSizes) {
    const OwnedTensor x = normal(DType::kF32, {n}, 1);
    const OwnedTensor result(DType::kF64, {1});
    device.operators().sum_of_squares(device.stream(), x, result);
    const Values values = values_of(x);
    const double expected = dot(values, values);
    INFO(n);
    CHECK(std::abs(load_element(result, 0) - expected) <= 1e-13 * expected);
  }
}

TEST_CASE("the sum of squares passes on NaN and infinity, and does not overflow as fp32 would", "[ops]") {
  CpuDevice device;
  const OwnedTensor result(DType::kF64, {1});
  for (const std::int64_t where : {0, 16, 64}) {
    const OwnedTensor x = normal(DType::kF32, {65}, 1);
    store_element(x, where, std::numeric_limits<double>::quiet_NaN());
    device.operators().sum_of_squares(device.stream(), x, result);
    CHECK(std::isnan(load_element(result, 0)));
    store_element(x, where, -std::numeric_limits<double>::infinity());
    device.operators().sum_of_squares(device.stream(), x, result);
    CHECK(load_element(result, 0) == std::numeric_limits<double>::infinity());
  }
  const OwnedTensor large = constant(DType::kF32, {3}, 1e30);
  device.operators().sum_of_squares(device.stream(), large, result);
  CHECK(compare(result, {3e60}) == kAgrees);
}

TEST_CASE("nothing is done for no elements, and an empty sum is zero", "[ops]") {
  CpuDevice device;
  const OwnedTensor none(DType::kF32, {0, 5});
  const OwnedTensor result(DType::kF64, {1});
  Operators& operators = device.operators();
  CHECK_NOTHROW(operators.add(device.stream(), none, none, none));
  CHECK_NOTHROW(operators.copy(device.stream(), none, none));
  CHECK_NOTHROW(operators.zero(device.stream(), none));
  operators.sum_of_squares(device.stream(), none, result);
  CHECK(load_element(result, 0) == 0.0);
}

}  // namespace slimpipe::device
