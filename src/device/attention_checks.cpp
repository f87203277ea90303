#include "device/attention_checks.h"

#include <fmt/core.h>
#include <string>

#include "slimpipe/core/check.h"

namespace slimpipe::device {

namespace {

constexpr std::int64_t kHeadSizeStep = 8;
constexpr std::int64_t kHeadSizeLimit = 256;

void expect_shape(const char* name, const std::string& what, const Tensor& x, DType dtype,
                  std::initializer_list<std::int64_t> dims) {
  const Tensor expected(nullptr, dtype, dims);
  bool same = x.rank() == expected.rank() && x.dtype() == dtype;
  for (int i = 0; same && i < x.rank(); ++i) same = x.dim(i) == expected.dim(i);
  SLIMPIPE_CHECK(same, "{}: {} is {}, expected {}", name, what, x.describe(), expected.describe());
}

void check_queries(const char* name, const Tensor& q, std::int64_t position) {
  SLIMPIPE_CHECK(q.rank() == 3 && (q.dtype() == DType::kF32 || q.dtype() == DType::kBF16),
                 "{}: q is {}, expected fp32 or bf16 of [tokens, heads, head size]", name, q.describe());
  const std::int64_t head_size = q.dim(2);
  SLIMPIPE_CHECK(head_size > 0 && head_size % kHeadSizeStep == 0 && head_size <= kHeadSizeLimit,
                 "{}: the head size is {}, expected a multiple of {} up to {}", name, head_size,
                 kHeadSizeStep, kHeadSizeLimit);
  SLIMPIPE_CHECK(position >= 0, "{}: the queries start at position {}, expected 0 or more", name, position);
}

void check_blocks(const char* name, const Tensor& q, std::span<const KvBlock> blocks) {
  if (blocks.empty()) return;
  const Tensor& first = blocks[0].k;
  SLIMPIPE_CHECK(first.rank() == 3 && first.dim(1) > 0 && q.dim(1) % first.dim(1) == 0,
                 "{}: k of block 0 is {}, expected [tokens, KV heads, head size] with KV heads that divide "
                 "the {} query heads",
                 name, first.describe(), q.dim(1));
  std::int64_t next = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const KvBlock& block = blocks[i];
    SLIMPIPE_CHECK(block.k.rank() == 3, "{}: k of block {} is {}, expected three dimensions", name, i,
                   block.k.describe());
    const std::int64_t tokens = block.k.dim(0);
    expect_shape(name, fmt::format("k of block {}", i), block.k, q.dtype(), {tokens, first.dim(1), q.dim(2)});
    expect_shape(name, fmt::format("v of block {}", i), block.v, q.dtype(), {tokens, first.dim(1), q.dim(2)});
    SLIMPIPE_CHECK(block.first_position >= next,
                   "{}: block {} starts at position {}, expected at least {}, the end of the block before it",
                   name, i, block.first_position, next);
    next = block.first_position + tokens;
  }
}

void check_documents(const char* name, std::span<const std::int64_t> starts) {
  for (std::size_t i = 0; i < starts.size(); ++i)
    SLIMPIPE_CHECK(starts[i] >= 0 && (i == 0 || starts[i] > starts[i - 1]),
                   "{}: document start {} is {}, expected ascending positions", name, i, starts[i]);
}

void check_statistics(const char* name, const char* what, const Tensor& x, const Tensor& q) {
  expect_shape(name, what, x, DType::kF32, {q.dim(1), q.dim(0)});
}

}  // namespace

void check_attention_forward(const AttentionForward& args) {
  constexpr const char* kName = "attention_forward";
  check_queries(kName, args.q, args.query_position);
  check_blocks(kName, args.q, args.blocks);
  check_documents(kName, args.document_starts);
  expect_shape(kName, "o", args.o, args.q.dtype(), {args.q.dim(0), args.q.dim(1), args.q.dim(2)});
  check_statistics(kName, "lse", args.lse, args.q);
}

void check_merge_attention(const Tensor& o_part, const Tensor& lse_part, const Tensor& o, const Tensor& lse) {
  constexpr const char* kName = "merge_attention";
  check_queries(kName, o, 0);
  expect_shape(kName, "o_part", o_part, o.dtype(), {o.dim(0), o.dim(1), o.dim(2)});
  check_statistics(kName, "lse_part", lse_part, o);
  check_statistics(kName, "lse", lse, o);
}

void check_attention_delta(const Tensor& o, const Tensor& d_o, const Tensor& delta) {
  constexpr const char* kName = "attention_delta";
  check_queries(kName, o, 0);
  expect_shape(kName, "d_o", d_o, o.dtype(), {o.dim(0), o.dim(1), o.dim(2)});
  check_statistics(kName, "delta", delta, o);
}

void check_attention_backward(const AttentionBackward& args) {
  constexpr const char* kName = "attention_backward";
  const Tensor& q = args.q;
  check_queries(kName, q, args.query_position);
  check_blocks(kName, q, args.blocks);
  check_documents(kName, args.document_starts);
  expect_shape(kName, "d_o", args.d_o, q.dtype(), {q.dim(0), q.dim(1), q.dim(2)});
  expect_shape(kName, "dq", args.dq, DType::kF32, {q.dim(0), q.dim(1), q.dim(2)});
  check_statistics(kName, "lse", args.lse, q);
  check_statistics(kName, "delta", args.delta, q);
  SLIMPIPE_CHECK(args.kv_gradients.size() == args.blocks.size(),
                 "{}: {} KV gradients, expected one for each of the {} blocks", kName,
                 args.kv_gradients.size(), args.blocks.size());
  for (std::size_t i = 0; i < args.blocks.size(); ++i) {
    const Tensor& k = args.blocks[i].k;
    expect_shape(kName, fmt::format("dk of block {}", i), args.kv_gradients[i].dk, DType::kF32,
                 {k.dim(0), k.dim(1), k.dim(2)});
    expect_shape(kName, fmt::format("dv of block {}", i), args.kv_gradients[i].dv, DType::kF32,
                 {k.dim(0), k.dim(1), k.dim(2)});
  }
}

}  // namespace slimpipe::device
