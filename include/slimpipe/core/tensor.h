#pragma once
// A non-owning view of up to four dimensions, and nothing more: who owns the memory is the arena's
// matter (device/arena.h).
//
// Layout: row-major with the last dimension contiguous; outer dimensions may be strided (a slice of
// the columns of a wider matrix). Strides are in elements.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "slimpipe/core/check.h"
#include "slimpipe/core/dtype.h"

namespace slimpipe {

class Tensor {
 public:
  static constexpr int kMaxRank = 4;

  Tensor() = default;
  /// A contiguous tensor over `data`, which must stay alive and aligned to the element size.
  Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> dims);

  [[nodiscard]] bool empty() const { return data_ == nullptr || size() == 0; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t dim(int i) const { return dims_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::int64_t stride(int i) const { return strides_[static_cast<std::size_t>(i)]; }
  /// Number of elements.
  [[nodiscard]] std::int64_t size() const;
  /// size() times the element size; of a contiguous tensor, the bytes it spans.
  [[nodiscard]] std::int64_t bytes() const { return size() * size_of(dtype_); }
  [[nodiscard]] bool contiguous() const;

  /// The elements as T; T must be the dtype's C++ type.
  template <typename T>
  [[nodiscard]] T* as() const {
    SLIMPIPE_CHECK(DTypeOf<T>::kValue == dtype_, "tensor {} read as {}", describe(),
                   name_of(DTypeOf<T>::kValue));
    return static_cast<T*>(data_);
  }

  /// Rows [begin, end) of the first dimension.
  [[nodiscard]] Tensor rows(std::int64_t begin, std::int64_t end) const;
  /// Columns [begin, end) of a matrix; keeps the row stride.
  [[nodiscard]] Tensor columns(std::int64_t begin, std::int64_t end) const;
  /// The same elements in another shape; only of a contiguous tensor, sizes must agree.
  [[nodiscard]] Tensor reshape(std::initializer_list<std::int64_t> dims) const;

  /// "fp32[128, 64]", for error texts.
  [[nodiscard]] std::string describe() const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> dims_{};
  std::array<std::int64_t, kMaxRank> strides_{};
};

}  // namespace slimpipe
