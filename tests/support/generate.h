#pragma once
// Tensors for tests: owned memory with guard elements around it, filled from the counter-based
// generator, so every value is a function of the seed and prints the same on every machine.

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "slimpipe/core/random.h"
#include "slimpipe/core/tensor.h"

namespace slimpipe::testing {

/// Rounds to the values that `dtype` holds, so that a double-precision reference and the operator
/// under test start from the same numbers.
inline double rounded_to(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
    case DType::kI32:
      return static_cast<double>(static_cast<std::int32_t>(value));
    case DType::kI16:
      return static_cast<double>(static_cast<std::int16_t>(value));
    case DType::kF64:
      return value;
  }
  return value;
}

/// Element `index` of the storage of `tensor` (in elements from its data pointer), as double.
inline double load_element(const Tensor& tensor, std::int64_t index) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return static_cast<double>(tensor.as<float>()[index]);
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(tensor.as<BFloat16>()[index]));
    case DType::kI32:
      return static_cast<double>(tensor.as<std::int32_t>()[index]);
    case DType::kI16:
      return static_cast<double>(tensor.as<std::int16_t>()[index]);
    case DType::kF64:
      return tensor.as<double>()[index];
  }
  return 0;
}

inline void store_element(const Tensor& tensor, std::int64_t index, double value) {
  switch (tensor.dtype()) {
    case DType::kF32:
      tensor.as<float>()[index] = static_cast<float>(value);
      break;
    case DType::kBF16:
      tensor.as<BFloat16>()[index] = BFloat16(static_cast<float>(value));
      break;
    case DType::kI32:
      tensor.as<std::int32_t>()[index] = static_cast<std::int32_t>(value);
      break;
    case DType::kI16:
      tensor.as<std::int16_t>()[index] = static_cast<std::int16_t>(value);
      break;
    case DType::kF64:
      tensor.as<double>()[index] = value;
      break;
  }
}

/// Storage offset of the `n`-th element in row-major order, strides respected.
inline std::int64_t storage_offset(const Tensor& tensor, std::int64_t n) {
  std::int64_t offset = 0;
  for (int i = tensor.rank(); i-- > 0;) {
    offset += (n % tensor.dim(i)) * tensor.stride(i);
    n /= tensor.dim(i);
  }
  return offset;
}

/// All elements in row-major order, as double.
inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.size()));
  for (std::size_t n = 0; n < values.size(); ++n)
    values[n] = load_element(tensor, storage_offset(tensor, static_cast<std::int64_t>(n)));
  return values;
}

/// Memory for one tensor, 64-byte aligned, with guard bytes on both sides that intact() checks. The
/// elements start as 0xFF bytes: NaN in every floating type, so that what an operator forgets shows.
class OwnedTensor {
 public:
  OwnedTensor(DType dtype, std::initializer_list<std::int64_t> dims)
      : OwnedTensor(dtype, dims, Tensor(nullptr, dtype, dims).size()) {}

  /// A matrix whose rows are `row_stride` elements apart.
  static OwnedTensor padded(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride) {
    OwnedTensor owned(dtype, {rows, row_stride}, rows * row_stride);
    owned.view_ = owned.view_.columns(0, columns);
    return owned;
  }

  [[nodiscard]] const Tensor& view() const { return view_; }
  operator Tensor() const { return view_; }  // NOLINT(google-explicit-constructor): it stands for its view

  /// False when something wrote outside the tensor.
  [[nodiscard]] bool intact() const {
    const std::size_t size = storage_.size();
    for (std::size_t i = 0; i < begin_; ++i)
      if (storage_[i] != kGuard) return false;
    for (std::size_t i = begin_ + bytes_; i < size; ++i)
      if (storage_[i] != kGuard) return false;
    return true;
  }
  /// The raw bytes, padding included: for bitwise comparisons.
  [[nodiscard]] std::vector<unsigned char> bytes() const {
    return {storage_.begin() + static_cast<std::ptrdiff_t>(begin_),
            storage_.begin() + static_cast<std::ptrdiff_t>(begin_ + bytes_)};
  }

 private:
  static constexpr std::size_t kGuardBytes = 192;
  static constexpr std::size_t kAlign = 64;
  static constexpr unsigned char kGuard = 0xA5;

  OwnedTensor(DType dtype, std::initializer_list<std::int64_t> dims, std::int64_t elements)
      : bytes_(static_cast<std::size_t>(elements * size_of(dtype))),
        storage_(bytes_ + 2 * kGuardBytes + kAlign, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + kGuardBytes;
    begin_ = kGuardBytes + (kAlign - address % kAlign) % kAlign;
    if (bytes_ > 0) std::memset(storage_.data() + begin_, 0xFF, bytes_);
    view_ = Tensor(storage_.data() + begin_, dtype, dims);
  }

  std::size_t bytes_ = 0;
  std::size_t begin_ = 0;
  std::vector<unsigned char> storage_;  // moving a vector keeps its address, so views stay valid
  Tensor view_;
};

inline RandomStream test_stream(std::uint32_t detail = 0) {
  return {RandomStream::Use::kTest, detail};
}

/// Fills with mean + scale · normal.
inline void fill_normal(const Tensor& tensor, std::uint64_t seed, double scale = 1.0, double mean = 0.0) {
  for (std::int64_t n = 0; n < tensor.size(); ++n)
    store_element(tensor, storage_offset(tensor, n),
                  mean + scale * random_normal(seed, test_stream(), static_cast<std::uint64_t>(n)));
}

/// Fills with integers of [low, high).
inline void fill_integers(const Tensor& tensor, std::uint64_t seed, std::int64_t low, std::int64_t high) {
  const auto range = static_cast<std::uint64_t>(high - low);
  for (std::int64_t n = 0; n < tensor.size(); ++n) {
    const std::uint64_t word = random_u64(seed, test_stream(1), static_cast<std::uint64_t>(n));
    store_element(tensor, storage_offset(tensor, n),
                  static_cast<double>(low + static_cast<std::int64_t>(word % range)));
  }
}

inline void fill_constant(const Tensor& tensor, double value) {
  for (std::int64_t n = 0; n < tensor.size(); ++n) store_element(tensor, storage_offset(tensor, n), value);
}

inline void fill_values(const Tensor& tensor, const std::vector<double>& values) {
  SLIMPIPE_CHECK(std::ssize(values) == tensor.size(), "{} values for {}", values.size(), tensor.describe());
  for (std::int64_t n = 0; n < tensor.size(); ++n)
    store_element(tensor, storage_offset(tensor, n), values[static_cast<std::size_t>(n)]);
}

inline OwnedTensor normal(DType dtype, std::initializer_list<std::int64_t> dims, std::uint64_t seed,
                          double scale = 1.0, double mean = 0.0) {
  OwnedTensor tensor(dtype, dims);
  fill_normal(tensor, seed, scale, mean);
  return tensor;
}

inline OwnedTensor integers(std::initializer_list<std::int64_t> dims, std::uint64_t seed, std::int64_t low,
                            std::int64_t high) {
  OwnedTensor tensor(DType::kI32, dims);
  fill_integers(tensor, seed, low, high);
  return tensor;
}

inline OwnedTensor constant(DType dtype, std::initializer_list<std::int64_t> dims, double value) {
  OwnedTensor tensor(dtype, dims);
  fill_constant(tensor, value);
  return tensor;
}

}  // namespace slimpipe::testing
