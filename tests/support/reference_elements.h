#pragma once
// Element access in double precision for the reference operators: any type, any strides.

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "slimpipe/core/tensor.h"

namespace slimpipe::test {

inline double load(const Tensor& t, std::int64_t offset) {
  switch (t.dtype()) {
    case DType::kF32:
      return t.as<float>()[offset];
    case DType::kBF16:
      return static_cast<float>(t.as<BFloat16>()[offset]);
    case DType::kF64:
      return t.as<double>()[offset];
    case DType::kI32:
      return t.as<std::int32_t>()[offset];
    case DType::kI16:
      return t.as<std::int16_t>()[offset];
  }
  return 0;
}

inline void store(const Tensor& t, std::int64_t offset, double value) {
  switch (t.dtype()) {
    case DType::kF32:
      t.as<float>()[offset] = static_cast<float>(value);
      break;
    case DType::kBF16:
      t.as<BFloat16>()[offset] = BFloat16(static_cast<float>(value));
      break;
    case DType::kF64:
      t.as<double>()[offset] = value;
      break;
    case DType::kI32:
      t.as<std::int32_t>()[offset] = static_cast<std::int32_t>(value);
      break;
    case DType::kI16:
      t.as<std::int16_t>()[offset] = static_cast<std::int16_t>(value);
      break;
  }
}

inline std::int64_t offset_of(const Tensor& t, std::initializer_list<std::int64_t> index) {
  std::int64_t offset = 0;
  int i = 0;
  for (const std::int64_t x : index) offset += x * t.stride(i++);
  return offset;
}

/// get(t, {row, column}) and set(t, {row, column}, value).
inline double get(const Tensor& t, std::initializer_list<std::int64_t> index) {
  return load(t, offset_of(t, index));
}
inline void set(const Tensor& t, std::initializer_list<std::int64_t> index, double value) {
  store(t, offset_of(t, index), value);
}
inline void add_to(const Tensor& t, std::initializer_list<std::int64_t> index, double value) {
  const std::int64_t offset = offset_of(t, index);
  store(t, offset, load(t, offset) + value);
}

inline void expect_shape(const char* name, const Tensor& t, std::initializer_list<std::int64_t> dims) {
  bool equal = t.rank() == static_cast<int>(dims.size());
  int i = 0;
  for (const std::int64_t dim : dims) equal = equal && t.dim(i++) == dim;
  SLIMPIPE_CHECK(equal, "reference operator: {} is {}, expected {}", name, t.describe(),
                 Tensor(nullptr, t.dtype(), dims).describe());
}

inline void expect_type(const char* name, const Tensor& t, DType dtype) {
  SLIMPIPE_CHECK(t.dtype() == dtype, "reference operator: {} is {}, expected {}", name, t.describe(),
                 name_of(dtype));
}

}  // namespace slimpipe::test
