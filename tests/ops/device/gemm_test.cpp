#include <array>
#include <cmath>

#include "device/cpu/matrix_multiply.h"
#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

struct Case {
  std::int64_t m, n, k;
  std::int64_t padding;  ///< elements between the rows of every matrix
  DType input, output;
  bool transpose_a, transpose_b, accumulate;

  std::string text() const {
    return fmt::format("{}x{}x{} padding {} {} to {}{}{}{}", m, n, k, padding, name_of(input),
                       name_of(output), transpose_a ? " ta" : "", transpose_b ? " tb" : "",
                       accumulate ? " +=" : "");
  }
};

OwnedTensor matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t padding,
                   std::uint64_t seed) {
  OwnedTensor result = OwnedTensor::padded(dtype, rows, columns, columns + padding);
  fill_normal(result, seed);
  return result;
}

/// Every transpose, accumulation and pair of types, for some sizes.
template <typename Body>
void for_each_case(const std::vector<std::array<std::int64_t, 3>>& sizes, const Body& body) {
  constexpr std::array<std::pair<DType, DType>, 3> kTypes = {
      {{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}}};
  for (const auto& [m, n, k] : sizes)
    for (const auto& [input, output] : kTypes)
      for (const std::int64_t padding : {0, 5})
        for (int bits = 0; bits < 8; ++bits)
          body(Case{m, n, k, padding, input, output, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
}

/// Runs `multiply` on random matrices and compares with the reference; an empty text is agreement.
template <typename Multiply>
std::string check(const Case& c, const Multiply& multiply) {
  const OwnedTensor a = matrix(c.input, c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, c.padding, 1);
  const OwnedTensor b = matrix(c.input, c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, c.padding, 2);
  const OwnedTensor result = matrix(c.output, c.m, c.n, c.padding, 3);
  const Values start = c.accumulate ? values_of(result) : Values{};
  const Values expected =
      reference_gemm(values_of(a), values_of(b), start, c.m, c.n, c.k, c.transpose_a, c.transpose_b);
  multiply(Gemm{a, b, result, c.transpose_a, c.transpose_b, c.accumulate});
  if (!a.intact() || !b.intact() || !result.intact()) return "wrote outside a matrix";
  const double magnitude = std::sqrt(static_cast<double>(c.k + 1));
  return compare(result, expected, 2, magnitude);
}

}  // namespace

TEST_CASE("matrix products agree with double precision at odd sizes, all layouts and types", "[ops]") {
  CpuDevice device;
  for_each_case({{1, 1, 1}, {1, 17, 3}, {17, 1, 63}, {3, 65, 17}, {63, 33, 65}, {5, 7, 300}},
                [&](const Case& c) {
                  INFO(c.text());
                  CHECK(check(c, [&](const Gemm& gemm) { device.gemm(gemm); }) == kAgrees);
                });
}

TEST_CASE("bf16 products by way of fp32 copies agree as well", "[ops]") {
  CpuDevice device;
  cpu::MatrixMultiply multiply(cpu::BFloat16Products::kConverted);
  for_each_case({{1, 1, 1}, {17, 33, 5}, {63, 1, 65}}, [&](const Case& c) {
    INFO(c.text());
    CHECK(check(c, [&](const Gemm& gemm) {
            multiply.run(gemm, device.workspace(multiply.workspace_bytes(gemm)));
          }) == kAgrees);
  });
}

TEST_CASE("bf16 products larger than one fp32 copy agree, in a workspace that is bounded", "[ops]") {
  CpuDevice device;
  cpu::MatrixMultiply multiply(cpu::BFloat16Products::kConverted);
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1025, 3, 5}, {3, 2050, 7}, {1030, 3, 1029}, {3, 1027, 2051}}) {
    for (int bits = 0; bits < 8; ++bits) {
      const DType output = (bits & 1) != 0 ? DType::kF32 : DType::kBF16;
      const Case c{m, n, k, 5, DType::kBF16, output, (bits & 2) != 0, (bits & 2) == 0, (bits & 4) != 0};
      INFO(c.text());
      CHECK(check(c, [&](const Gemm& gemm) {
              const std::int64_t bytes = multiply.workspace_bytes(gemm);
              CHECK(bytes <= 16 << 20);
              multiply.run(gemm, device.workspace(bytes));
            }) == kAgrees);
    }
  }
}

TEST_CASE("the gap between padded rows of a product is left alone", "[ops]") {
  CpuDevice device;
  const OwnedTensor a = matrix(DType::kF32, 7, 9, 0, 1);
  const OwnedTensor b = matrix(DType::kF32, 9, 10, 0, 2);
  const OwnedTensor wide = constant(DType::kF32, {7, 16}, 4.0);
  device.gemm({.a = a, .b = b, .c = wide.view().columns(2, 12)});
  for (std::int64_t row = 0; row < 7; ++row)
    for (const std::int64_t column : {0, 1, 12, 13, 14, 15})
      CHECK(load_element(wide, storage_offset(wide, row * 16 + column)) == 4.0);
}

TEST_CASE("products of nothing do nothing, and an empty sum is zero", "[ops]") {
  CpuDevice device;
  const OwnedTensor none(DType::kF32, {0, 8});
  const OwnedTensor b = normal(DType::kF32, {8, 3}, 1);
  const OwnedTensor no_rows(DType::kF32, {0, 3});
  CHECK_NOTHROW(device.gemm({.a = none, .b = b, .c = no_rows}));

  const OwnedTensor tall(DType::kF32, {4, 0});
  const OwnedTensor flat(DType::kF32, {0, 5});
  const OwnedTensor c = constant(DType::kF32, {4, 5}, 3.0);
  device.gemm({.a = tall, .b = flat, .c = c, .accumulate = true});
  CHECK(compare(c, Values(20, 3.0)) == kAgrees);
  device.gemm({.a = tall, .b = flat, .c = c});
  CHECK(compare(c, Values(20, 0.0)) == kAgrees);
}

TEST_CASE("a product repeated gives the same bits, on one device and on another", "[ops]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const OwnedTensor a = normal(dtype, {65, 1000}, 1);
    const OwnedTensor b = normal(dtype, {33, 1000}, 2);
    std::vector<std::vector<unsigned char>> results;
    for (int i = 0; i < 2; ++i) {
      CpuDevice device;
      for (int repeat = 0; repeat < 3; ++repeat) {
        const OwnedTensor c(DType::kF32, {65, 33});
        device.gemm({.a = a, .b = b, .c = c, .transpose_b = true});
        results.push_back(c.bytes());
      }
    }
    for (const auto& result : results) CHECK(result == results[0]);
  }
}

TEST_CASE("a product does not depend on the number of threads", "[ops]") {
  CpuDevice one;
  CpuDevice two(2);
  CpuDevice eight(8);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{16, 16, 8000},
                                  {65, 33, 1000},
                                  {300, 200, 500},
                                  {1024, 64, 8192},
                                  {512, 128, 4096}})
      for (const bool transpose_a : {false, true}) {
        INFO(name_of(dtype) << " " << m << "x" << n << "x" << k << " transpose_a " << transpose_a);
        const OwnedTensor a = matrix(dtype, transpose_a ? k : m, transpose_a ? m : k, 0, 1);
        const OwnedTensor b = matrix(dtype, k, n, 0, 2);
        const OwnedTensor first(DType::kF32, {m, n});
        const OwnedTensor second(DType::kF32, {m, n});
        one.gemm({.a = a, .b = b, .c = first, .transpose_a = transpose_a});
        two.gemm({.a = a, .b = b, .c = second, .transpose_a = transpose_a});
        CHECK(first.bytes() == second.bytes());
        eight.gemm({.a = a, .b = b, .c = second, .transpose_a = transpose_a});
        CHECK(first.bytes() == second.bytes());
      }
}

TEST_CASE("a product refuses a workspace that is too small", "[ops]") {
  cpu::MatrixMultiply multiply(cpu::BFloat16Products::kConverted);
  CpuDevice device;
  const OwnedTensor a = normal(DType::kBF16, {65, 63}, 1);
  const OwnedTensor b = normal(DType::kBF16, {63, 65}, 2);
  const OwnedTensor c(DType::kBF16, {65, 65});
  const Gemm gemm{.a = a, .b = b, .c = c};
  CHECK(multiply.workspace_bytes(gemm) >= (65 * 63 * 2 + 65 * 65) * 4);
  if (device.operators().gemm_workspace_bytes(gemm) > 0)
    CHECK_THROWS_AS(device.operators().gemm(device.stream(), gemm, Tensor()), Error);
}

}  // namespace slimpipe::device
