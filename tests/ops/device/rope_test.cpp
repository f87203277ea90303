#include <cmath>

#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"
#include "support/reference_elementwise.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

struct Shape {
  std::int64_t tokens, heads, kv_heads, size;
};
constexpr Shape kShapes[] = {{1, 1, 1, 8}, {3, 4, 2, 24}, {5, 6, 1, 64}, {2, 2, 2, 128}, {17, 3, 3, 40}};

OwnedTensor inverse_frequencies(std::int64_t half) {
  OwnedTensor result(DType::kF64, {half});
  for (std::int64_t i = 0; i < half; ++i)
    store_element(result, i, std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
  return result;
}

/// Columns [begin, end) of every row.
Values columns_of(const Values& matrix, std::int64_t width, std::int64_t begin, std::int64_t end) {
  Values result;
  for (std::int64_t row = 0; row < std::ssize(matrix) / width; ++row)
    for (std::int64_t column = begin; column < end; ++column)
      result.push_back(matrix[at(row, width, column)]);
  return result;
}

struct Tables {
  OwnedTensor cos, sin;
  Tables(CpuDevice& device, std::int64_t tokens, std::int64_t half)
      : cos(DType::kF32, {tokens, half}), sin(DType::kF32, {tokens, half}) {
    device.operators().rope_table(device.stream(), inverse_frequencies(half), 1000, 1.0F, cos, sin);
  }
};

}  // namespace

TEST_CASE("tables of angles are exact to fp32 at positions in the millions", "[ops]") {
  CpuDevice device;
  const std::int64_t half = 17;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{123457}, std::int64_t{8000001}}) {
    const OwnedTensor frequency = inverse_frequencies(half);
    const OwnedTensor cos(DType::kF32, {5, half});
    const OwnedTensor sin(DType::kF32, {5, half});
    constexpr float kMagnitude = 1.25F;
    device.operators().rope_table(device.stream(), frequency, first, kMagnitude, cos, sin);
    Values expected_cos;
    Values expected_sin;
    for (std::int64_t t = 0; t < 5; ++t)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(first + t) * load_element(frequency, i);
        expected_cos.push_back(std::cos(angle) * double{kMagnitude});
        expected_sin.push_back(std::sin(angle) * double{kMagnitude});
      }
    CHECK(compare(cos, expected_cos) == kAgrees);
    CHECK(compare(sin, expected_sin) == kAgrees);
  }
}

TEST_CASE("rotation splits a projection into rotated q and k, and v as it was", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [tokens, heads, kv_heads, size] : kShapes) {
      INFO(name_of(dtype) << " T " << tokens << " N " << heads << " K " << kv_heads << " D " << size);
      const std::int64_t width = (heads + 2 * kv_heads) * size;
      OwnedTensor qkv = OwnedTensor::padded(dtype, tokens, width, width + 3);
      fill_normal(qkv, 1);
      const Tables tables(device, tokens, size / 2);
      const OwnedTensor q(dtype, {tokens, heads, size});
      const OwnedTensor k(dtype, {tokens, kv_heads, size});
      const OwnedTensor v(dtype, {tokens, kv_heads, size});
      device.operators().rope_forward(device.stream(), qkv, tables.cos, tables.sin, q, k, v);
      const Values all = values_of(qkv);
      const Values cos = values_of(tables.cos);
      const Values sin = values_of(tables.sin);
      const std::int64_t k_begin = heads * size;
      const std::int64_t v_begin = k_begin + kv_heads * size;
      CHECK(compare(q, reference_rotate(columns_of(all, width, 0, k_begin), cos, sin, tokens, heads, size)) ==
            kAgrees);
      CHECK(compare(k, reference_rotate(columns_of(all, width, k_begin, v_begin), cos, sin, tokens, kv_heads,
                                        size)) == kAgrees);
      CHECK(values_of(v) == columns_of(all, width, v_begin, width));
      CHECK((q.intact() && k.intact() && v.intact()));
    }
}

TEST_CASE("gradients are rotated back and joined", "[ops]") {
  CpuDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [tokens, heads, kv_heads, size] : kShapes) {
      INFO(name_of(dtype) << " T " << tokens << " N " << heads << " K " << kv_heads << " D " << size);
      const std::int64_t width = (heads + 2 * kv_heads) * size;
      const Tables tables(device, tokens, size / 2);
      const OwnedTensor dq = normal(DType::kF32, {tokens, heads, size}, 1);
      const OwnedTensor dk = normal(DType::kF32, {tokens, kv_heads, size}, 2);
      const OwnedTensor dv = normal(DType::kF32, {tokens, kv_heads, size}, 3);
      const OwnedTensor d_qkv = OwnedTensor::padded(dtype, tokens, width, width + 1);
      device.operators().rope_backward(device.stream(), dq, dk, dv, tables.cos, tables.sin, d_qkv);
      const Values cos = values_of(tables.cos);
      const Values sin = values_of(tables.sin);
      const std::int64_t k_begin = heads * size;
      const std::int64_t v_begin = k_begin + kv_heads * size;
      const Tensor result = d_qkv;
      CHECK(compare(result.columns(0, k_begin),
                    reference_rotate(values_of(dq), cos, sin, tokens, heads, size, -1)) == kAgrees);
      CHECK(compare(result.columns(k_begin, v_begin),
                    reference_rotate(values_of(dk), cos, sin, tokens, kv_heads, size, -1)) == kAgrees);
      CHECK(compare(result.columns(v_begin, width), values_of(dv)) == kAgrees);
      CHECK(d_qkv.intact());
    }
}

TEST_CASE("rotating back is the transpose of rotating", "[ops]") {
  CpuDevice device;
  const std::int64_t size = 24;
  const Tables tables(device, 3, size / 2);
  const OwnedTensor qkv = normal(DType::kF32, {3, 4 * size}, 1);
  const OwnedTensor q(DType::kF32, {3, 2, size});
  const OwnedTensor k(DType::kF32, {3, 1, size});
  const OwnedTensor v(DType::kF32, {3, 1, size});
  device.operators().rope_forward(device.stream(), qkv, tables.cos, tables.sin, q, k, v);
  const OwnedTensor back(DType::kF32, {3, 4 * size});
  device.operators().rope_backward(device.stream(), q, k, v, tables.cos, tables.sin, back);
  CHECK(compare(back, values_of(qkv)) == kAgrees);  // a rotation's transpose is its inverse
}

}  // namespace slimpipe::device
