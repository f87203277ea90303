// clang-format off: simd_targets.h must come first, and foreach_target.h before what it compiles again
#include "device/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "device/cpu/lanes.h"
// clang-format on

#include "slimpipe/core/tensor.h"

#include "device/cpu/embedding.h"
#include "device/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device::cpu::HWY_NAMESPACE {

template <class T>
void scatter_rows(const Tensor& tokens, const Tensor& dy, const Tensor& d_table) {
  for (std::int64_t t = 0; t < dy.dim(0); ++t) {
    const T* from = dy.as<T>() + t * dy.stride(0);
    float* to = d_table.as<float>() + tokens.as<std::int32_t>()[t] * d_table.stride(0);
    for_each_block(dy.dim(1), [=](std::int64_t i, auto extent) HWY_ATTR {
      store(load(to + i, extent) + load(from + i, extent), to + i, extent);
    });
  }
}

void scatter_add(const Tensor& tokens, const Tensor& dy, const Tensor& d_table) {
  dispatch_compute(dy.dtype(), [&](auto type) { scatter_rows<decltype(type)>(tokens, dy, d_table); });
}

}  // namespace slimpipe::device::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device::cpu {

HWY_EXPORT(scatter_add);

namespace {

void check_tokens(const char* name, const Tensor& tokens, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < tokens.size(); ++t) {
    const std::int32_t token = tokens.as<std::int32_t>()[t];
    SLIMPIPE_CHECK(token >= 0 && token < vocabulary, "{}: token {} at row {} is outside the vocabulary of {}",
                   name, token, t, vocabulary);
  }
}

}  // namespace

void embedding_forward(Tensor tokens, Tensor table, Tensor y, int threads) {
  check_tokens("embedding_forward", tokens, table.dim(0));
  const std::int64_t element = size_of(y.dtype());
  const auto row_bytes = static_cast<std::size_t>(y.dim(1) * element);
  parallel_ranges(threads, y.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = tokens.as<std::int32_t>()[t];
      std::memcpy(static_cast<std::byte*>(y.data()) + t * y.stride(0) * element,
                  static_cast<const std::byte*>(table.data()) + row * table.stride(0) * element, row_bytes);
    }
  });
}

void embedding_backward(Tensor tokens, Tensor dy, Tensor d_table) {
  check_tokens("embedding_backward", tokens, d_table.dim(0));
  HWY_DYNAMIC_DISPATCH(scatter_add)(tokens, dy, d_table);
}

}  // namespace slimpipe::device::cpu
#endif
