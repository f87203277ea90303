#include "device/cpu/matrix_multiply.h"

#include <algorithm>
#include <functional>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "device/cpu/elementwise.h"

namespace slimpipe::device::cpu {

namespace {

using Strides = dnnl::memory::dims;

/// All that a primitive is made for. Strides are in elements.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  DType input = DType::kF32;
  DType output = DType::kF32;

  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  std::size_t operator()(const Problem& p) const {
    const std::int64_t flags = (p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.accumulate ? 4 : 0) |
                               static_cast<int>(p.input) << 3 | static_cast<int>(p.output) << 5;
    std::uint64_t hash = 0;
    for (const std::int64_t value : {p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride, flags})
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15U + (hash >> 29);
    return static_cast<std::size_t>(hash);
  }
};

Problem problem_of(const Gemm& gemm) {
  return {.m = gemm.c.dim(0),
          .n = gemm.c.dim(1),
          .k = gemm.a.dim(gemm.transpose_a ? 0 : 1),
          .a_stride = gemm.a.stride(0),
          .b_stride = gemm.b.stride(0),
          .c_stride = gemm.c.stride(0),
          .transpose_a = gemm.transpose_a,
          .transpose_b = gemm.transpose_b,
          .accumulate = gemm.accumulate,
          .input = gemm.a.dtype(),
          .output = gemm.c.dtype()};
}

dnnl::memory::data_type data_type_of(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType dtype, std::int64_t row_stride,
                          bool transposed) {
  return {{rows, columns}, data_type_of(dtype), transposed ? Strides{1, row_stride} : Strides{row_stride, 1}};
}

/// An empty descriptor where oneDNN has no implementation.
dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const Problem& p) {
  const auto a = matrix(p.m, p.k, p.input, p.a_stride, p.transpose_a);
  const auto b = matrix(p.k, p.n, p.input, p.b_stride, p.transpose_b);
  const auto c = matrix(p.m, p.n, p.output, p.c_stride, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  constexpr bool kAllowEmpty = true;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes, kAllowEmpty};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine, kAllowEmpty};
#endif
}

std::int64_t aligned(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Largest extent of a product that is made at once from fp32 copies. It bounds the three copies to 12 MiB,
/// while an element that is copied serves about a thousand multiplications, which dwarf the copy.
constexpr std::int64_t kConvertedExtent = 1024;

/// [0, extent) in equal parts (the last may be shorter) of at most kConvertedExtent.
struct Parts {
  std::int64_t extent, length;

  explicit Parts(std::int64_t whole) : extent(whole) {
    const std::int64_t count = (whole + kConvertedExtent - 1) / kConvertedExtent;
    length = (whole + count - 1) / count;
  }
  template <class Body>
  void for_each(Body body) const {
    for (std::int64_t begin = 0; begin < extent; begin += length)
      body(begin, std::min(begin + length, extent));
  }
};

/// A part of a product: C's rows and columns, and some of the terms of their sums.
struct Tile {
  Gemm gemm;         ///< on views of the original's matrices; later terms of a sum accumulate
  bool first, last;  ///< of the sum
};

template <class Body>
void for_each_tile(const Gemm& gemm, Body body) {
  const auto part = [](const Tensor& x, bool transposed, std::int64_t row, std::int64_t row_end,
                       std::int64_t column, std::int64_t column_end) {
    return transposed ? x.rows(column, column_end).columns(row, row_end)
                      : x.rows(row, row_end).columns(column, column_end);
  };
  const Problem problem = problem_of(gemm);
  Parts(problem.m).for_each([&](std::int64_t m, std::int64_t m_end) {
    Parts(problem.n).for_each([&](std::int64_t n, std::int64_t n_end) {
      Parts(problem.k).for_each([&](std::int64_t k, std::int64_t k_end) {
        Tile tile{.gemm = gemm, .first = k == 0, .last = k_end == problem.k};
        tile.gemm.a = part(gemm.a, gemm.transpose_a, m, m_end, k, k_end);
        tile.gemm.b = part(gemm.b, gemm.transpose_b, k, k_end, n, n_end);
        tile.gemm.c = gemm.c.rows(m, m_end).columns(n, n_end);
        tile.gemm.accumulate = gemm.accumulate || !tile.first;
        body(tile);
      });
    });
  });
}

/// The fp32 product on packed copies: bf16 inputs become fp32, and so does a bf16 C.
struct ConvertedGemm {
  Gemm gemm;
  std::int64_t copies = 0;  ///< bytes of workspace the copies take

  ConvertedGemm(const Gemm& original, void* workspace) : gemm(original) {
    // C first: the parts of a sum differ in A and B, and must find it where the one before left it.
    if (original.c.dtype() == DType::kBF16) gemm.c = place(original.c, workspace);
    gemm.a = place(original.a, workspace);
    gemm.b = place(original.b, workspace);
  }

 private:
  Tensor place(const Tensor& x, void* workspace) {
    void* data = workspace == nullptr ? nullptr : static_cast<std::byte*>(workspace) + copies;
    copies += aligned(x.size() * size_of(DType::kF32));
    return Tensor(data, DType::kF32, {x.dim(0), x.dim(1)});
  }
};

/// One thread a product: with more, oneDNN shares out the inner dimension of some shapes, and the order of
/// the sums would depend on the number of threads. OpenMP keeps the setting for each calling thread.
void use_one_thread() {
  omp_set_num_threads(1);
}

bool is_empty(const Gemm& gemm) {
  return gemm.c.size() == 0;
}
bool sums_nothing(const Gemm& gemm) {
  return gemm.a.size() == 0;
}

}  // namespace

BFloat16Products best_bfloat16_products() {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  constexpr std::int64_t kSize = 64;
  const auto descriptor = describe(engine, {.m = kSize,
                                            .n = kSize,
                                            .k = kSize,
                                            .a_stride = kSize,
                                            .b_stride = kSize,
                                            .c_stride = kSize,
                                            .input = DType::kBF16,
                                            .output = DType::kF32});
  const bool native = descriptor && !std::string_view(descriptor.impl_info_str()).starts_with("ref");
  return native ? BFloat16Products::kNative : BFloat16Products::kConverted;
}

class MatrixMultiply::Cache {
 public:
  /// A primitive with its memory objects, of which only the addresses change from call to call.
  struct Entry {
    explicit Entry(const dnnl::matmul::primitive_desc& descriptor, const dnnl::engine& engine)
        : scratch_bytes(aligned(static_cast<std::int64_t>(descriptor.scratchpad_desc().get_size()))),
          primitive(descriptor),
          a(descriptor.src_desc(), engine, nullptr),
          b(descriptor.weights_desc(), engine, nullptr),
          c(descriptor.dst_desc(), engine, nullptr),
          scratch(descriptor.scratchpad_desc(), engine, nullptr),
          arguments{
              {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_SCRATCHPAD, scratch}} {}

    std::int64_t scratch_bytes;
    dnnl::matmul primitive;
    dnnl::memory a, b, c, scratch;
    std::unordered_map<int, dnnl::memory> arguments;  // handles to the four above
  };

  Entry& entry_of(const Gemm& gemm) {
    const Problem problem = problem_of(gemm);
    auto found = entries_.find(problem);
    if (found == entries_.end()) {
      const auto descriptor = describe(engine_, problem);
      if (!descriptor)
        throw_error("oneDNN has no matrix product for {} and {} to {} on this CPU", gemm.a.describe(),
                    gemm.b.describe(), gemm.c.describe());
      found = entries_.try_emplace(problem, descriptor, engine_).first;
    }
    return found->second;
  }

  void run(const Gemm& gemm, void* scratch) {
    Entry& entry = entry_of(gemm);
    entry.a.set_data_handle(gemm.a.data());
    entry.b.set_data_handle(gemm.b.data());
    entry.c.set_data_handle(gemm.c.data());
    entry.scratch.set_data_handle(scratch);
    entry.primitive.execute(stream_, entry.arguments);
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};  // a CPU stream executes within the call
  std::unordered_map<Problem, Entry, ProblemHash> entries_;
};

MatrixMultiply::MatrixMultiply(BFloat16Products products)
    : products_(products), cache_(std::make_unique<Cache>()) {}

MatrixMultiply::~MatrixMultiply() = default;

std::int64_t MatrixMultiply::workspace_bytes(const Gemm& gemm) {
  if (is_empty(gemm) || sums_nothing(gemm)) return 0;
  use_one_thread();
  if (gemm.a.dtype() == DType::kBF16 && products_ == BFloat16Products::kConverted) {
    std::int64_t bytes = 0;
    for_each_tile(gemm, [&](const Tile& tile) {
      const ConvertedGemm converted(tile.gemm, nullptr);
      bytes = std::max(bytes, converted.copies + cache_->entry_of(converted.gemm).scratch_bytes);
    });
    return bytes;
  }
  return cache_->entry_of(gemm).scratch_bytes;
}

void MatrixMultiply::run(const Gemm& gemm, Tensor workspace) {
  if (is_empty(gemm)) return;
  if (sums_nothing(gemm)) {
    if (!gemm.accumulate) zero(gemm.c, 1);
    return;
  }
  use_one_thread();
  if (gemm.a.dtype() == DType::kBF16 && products_ == BFloat16Products::kConverted) {
    run_converted(gemm, workspace);
  } else {
    cache_->run(gemm, workspace.data());
  }
}

void MatrixMultiply::run_converted(const Gemm& gemm, Tensor workspace) {
  const bool output_is_copy = gemm.c.dtype() == DType::kBF16;
  for_each_tile(gemm, [&](const Tile& tile) {
    const ConvertedGemm converted(tile.gemm, workspace.data());
    copy(tile.gemm.a, converted.gemm.a, 1);
    copy(tile.gemm.b, converted.gemm.b, 1);
    if (output_is_copy && tile.first && gemm.accumulate) copy(tile.gemm.c, converted.gemm.c, 1);
    cache_->run(converted.gemm, static_cast<std::byte*>(workspace.data()) + converted.copies);
    if (output_is_copy && tile.last) copy(converted.gemm.c, tile.gemm.c, 1);
  });
}

}  // namespace slimpipe::device::cpu
