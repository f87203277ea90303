#include "slimpipe/core/tensor.h"

namespace slimpipe {

Tensor::Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> dims)
    : data_(data), dtype_(dtype), rank_(static_cast<int>(dims.size())) {
  SLIMPIPE_CHECK(dims.size() <= kMaxRank, "rank {} is more than {}", dims.size(), kMaxRank);
  std::size_t i = 0;
  for (const std::int64_t dim : dims) {
    SLIMPIPE_CHECK(dim >= 0, "dimension {} is {}", i, dim);
    dims_[i++] = dim;
  }
  std::int64_t stride = 1;
  for (std::size_t j = dims.size(); j-- > 0;) {
    strides_[j] = stride;
    stride *= dims_[j];
  }
}

std::int64_t Tensor::size() const {
  if (rank_ == 0) return 0;
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= dim(i);
  return n;
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int i = rank_; i-- > 0;) {
    if (dim(i) != 1 && stride(i) != expected) return false;
    expected *= dim(i);
  }
  return true;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  SLIMPIPE_CHECK(rank_ >= 1 && begin >= 0 && begin <= end && end <= dim(0), "rows [{}, {}) of {}", begin, end,
                 describe());
  Tensor view = *this;
  view.data_ = static_cast<std::byte*>(data_) + begin * stride(0) * size_of(dtype_);
  view.dims_[0] = end - begin;
  return view;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t end) const {
  SLIMPIPE_CHECK(rank_ == 2 && begin >= 0 && begin <= end && end <= dim(1), "columns [{}, {}) of {}", begin,
                 end, describe());
  Tensor view = *this;
  view.data_ = static_cast<std::byte*>(data_) + begin * size_of(dtype_);
  view.dims_[1] = end - begin;
  return view;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> dims) const {
  SLIMPIPE_CHECK(contiguous(), "reshape of the strided tensor {}", describe());
  const Tensor view(data_, dtype_, dims);
  SLIMPIPE_CHECK(view.size() == size(), "reshape of {} to {}", describe(), view.describe());
  return view;
}

std::string Tensor::describe() const {
  std::string text(name_of(dtype_));
  text += '[';
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", dim(i));
  return text + ']';
}

}  // namespace slimpipe
