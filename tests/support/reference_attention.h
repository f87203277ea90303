#pragma once
// Attention over a list of KV blocks in plain loops and double arithmetic: every score is computed where
// it is needed, and the softmax sees the whole row.

#include <limits>

#include "slimpipe/device/operators.h"

#include "support/reference_elements.h"

namespace slimpipe::test {

/// First position of the document that holds `position`.
inline std::int64_t document_start(std::span<const std::int64_t> starts, std::int64_t position) {
  std::int64_t start = 0;
  for (const std::int64_t s : starts) {
    if (s <= position) start = s;
  }
  return start;
}

inline bool query_sees_key(std::span<const std::int64_t> starts, std::int64_t query, std::int64_t key) {
  return key <= query && key >= document_start(starts, query);
}

/// scale · q[t, head] · k[row, its KV head]
template <typename Args>
double attention_score(const Args& a, std::int64_t t, std::int64_t head, const device::KvBlock& block,
                       std::int64_t row) {
  const std::int64_t kv_head = head / (a.q.dim(1) / block.k.dim(1));
  double score = 0;
  for (std::int64_t d = 0; d < a.q.dim(2); ++d)
    score += get(a.q, {t, head, d}) * get(block.k, {row, kv_head, d});
  return score * static_cast<double>(a.scale);
}

template <typename Args>
void expect_attention_shapes(const Args& a) {
  SLIMPIPE_CHECK(a.q.rank() == 3, "reference attention: q is {}", a.q.describe());
  for (const device::KvBlock& block : a.blocks) {
    SLIMPIPE_CHECK(block.k.rank() == 3 && a.q.dim(1) % block.k.dim(1) == 0, "reference attention: k is {}",
                   block.k.describe());
    expect_shape("k", block.k, {block.k.dim(0), block.k.dim(1), a.q.dim(2)});
    expect_shape("v", block.v, {block.k.dim(0), block.k.dim(1), a.q.dim(2)});
    expect_type("k", block.k, a.q.dtype());
    expect_type("v", block.v, a.q.dtype());
  }
}

/// Calls body(block index, row) for every key that query row t sees, ascending.
template <typename Args, typename Body>
void for_each_seen_key(const Args& a, std::int64_t t, Body&& body) {
  for (std::size_t b = 0; b < a.blocks.size(); ++b) {
    for (std::int64_t row = 0; row < a.blocks[b].k.dim(0); ++row) {
      if (query_sees_key(a.document_starts, a.query_position + t, a.blocks[b].first_position + row))
        body(b, row);
    }
  }
}

inline void reference_attention_row(const device::AttentionForward& a, std::int64_t t, std::int64_t head) {
  const std::int64_t head_size = a.q.dim(2);
  double maximum = -std::numeric_limits<double>::infinity();
  for_each_seen_key(a, t, [&](std::size_t b, std::int64_t row) {
    maximum = std::max(maximum, attention_score(a, t, head, a.blocks[b], row));
  });
  double sum = 0;
  std::vector<double> output(static_cast<std::size_t>(head_size));
  for_each_seen_key(a, t, [&](std::size_t b, std::int64_t row) {
    const device::KvBlock& block = a.blocks[b];
    const std::int64_t kv_head = head / (a.q.dim(1) / block.k.dim(1));
    const double weight = std::exp(attention_score(a, t, head, block, row) - maximum);
    sum += weight;
    for (std::int64_t d = 0; d < head_size; ++d) {
      output[static_cast<std::size_t>(d)] += weight * get(block.v, {row, kv_head, d});
    }
  });
  for (std::int64_t d = 0; d < head_size; ++d) {
    set(a.o, {t, head, d}, sum > 0 ? output[static_cast<std::size_t>(d)] / sum : 0);
  }
  set(a.lse, {head, t}, sum > 0 ? maximum + std::log(sum) : -std::numeric_limits<double>::infinity());
}

inline void reference_attention_forward(const device::AttentionForward& a) {
  expect_attention_shapes(a);
  expect_shape("o", a.o, {a.q.dim(0), a.q.dim(1), a.q.dim(2)});
  expect_shape("lse", a.lse, {a.q.dim(1), a.q.dim(0)});
  for (std::int64_t t = 0; t < a.q.dim(0); ++t) {
    for (std::int64_t head = 0; head < a.q.dim(1); ++head) reference_attention_row(a, t, head);
  }
}

struct AttentionWeight {
  double p = 0;   ///< softmax weight of one key
  double ds = 0;  ///< gradient of its scaled score, times scale
};

inline AttentionWeight attention_weight_gradient(const device::AttentionBackward& a, std::int64_t t,
                                                 std::int64_t head, const device::KvBlock& block,
                                                 std::int64_t row) {
  const std::int64_t kv_head = head / (a.q.dim(1) / block.k.dim(1));
  AttentionWeight w;
  w.p = std::exp(attention_score(a, t, head, block, row) - get(a.lse, {head, t}));
  double dp = 0;
  for (std::int64_t d = 0; d < a.q.dim(2); ++d)
    dp += get(a.d_o, {t, head, d}) * get(block.v, {row, kv_head, d});
  w.ds = w.p * (dp - get(a.delta, {head, t})) * static_cast<double>(a.scale);
  return w;
}

inline void reference_attention_dq(const device::AttentionBackward& a) {
  for (std::int64_t t = 0; t < a.q.dim(0); ++t) {
    for (std::int64_t head = 0; head < a.q.dim(1); ++head) {
      std::vector<double> dq(static_cast<std::size_t>(a.q.dim(2)));
      for_each_seen_key(a, t, [&](std::size_t b, std::int64_t row) {
        const device::KvBlock& block = a.blocks[b];
        const std::int64_t kv_head = head / (a.q.dim(1) / block.k.dim(1));
        const double ds = attention_weight_gradient(a, t, head, block, row).ds;
        for (std::int64_t d = 0; d < a.q.dim(2); ++d) {
          dq[static_cast<std::size_t>(d)] += ds * get(block.k, {row, kv_head, d});
        }
      });
      for (std::int64_t d = 0; d < a.q.dim(2); ++d) set(a.dq, {t, head, d}, dq[static_cast<std::size_t>(d)]);
    }
  }
}

/// dK, dV of one key row and KV head: the sum over every query row and every query head of the group.
inline void reference_attention_dkv(const device::AttentionBackward& a, std::size_t b, std::int64_t row,
                                    std::int64_t kv_head) {
  const device::KvBlock& block = a.blocks[b];
  const std::int64_t group = a.q.dim(1) / block.k.dim(1);
  const auto head_size = static_cast<std::size_t>(a.q.dim(2));
  std::vector<double> dk(head_size);
  std::vector<double> dv(head_size);
  for (std::int64_t t = 0; t < a.q.dim(0); ++t) {
    if (!query_sees_key(a.document_starts, a.query_position + t, block.first_position + row)) continue;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const AttentionWeight w = attention_weight_gradient(a, t, head, block, row);
      for (std::size_t d = 0; d < head_size; ++d) {
        const auto column = static_cast<std::int64_t>(d);
        dk[d] += w.ds * get(a.q, {t, head, column});
        dv[d] += w.p * get(a.d_o, {t, head, column});
      }
    }
  }
  for (std::size_t d = 0; d < head_size; ++d) {
    add_to(a.kv_gradients[b].dk, {row, kv_head, static_cast<std::int64_t>(d)}, dk[d]);
    add_to(a.kv_gradients[b].dv, {row, kv_head, static_cast<std::int64_t>(d)}, dv[d]);
  }
}

inline void reference_attention_backward(const device::AttentionBackward& a) {
  expect_attention_shapes(a);
  const std::int64_t tokens = a.q.dim(0);
  const std::int64_t heads = a.q.dim(1);
  expect_shape("d_o", a.d_o, {tokens, heads, a.q.dim(2)});
  expect_shape("dq", a.dq, {tokens, heads, a.q.dim(2)});
  expect_type("dq", a.dq, DType::kF32);
  expect_shape("lse", a.lse, {heads, tokens});
  expect_shape("delta", a.delta, {heads, tokens});
  SLIMPIPE_CHECK(a.blocks.size() == a.kv_gradients.size(), "reference attention: {} blocks, {} gradients",
                 a.blocks.size(), a.kv_gradients.size());
  reference_attention_dq(a);
  for (std::size_t b = 0; b < a.blocks.size(); ++b) {
    for (std::int64_t row = 0; row < a.blocks[b].k.dim(0); ++row) {
      for (std::int64_t kv_head = 0; kv_head < a.blocks[b].k.dim(1); ++kv_head) {
        reference_attention_dkv(a, b, row, kv_head);
      }
    }
  }
}

/// Softmax weights of two parts of the keys from their sums of exponentials.
inline void reference_merge_attention(const Tensor& o_part, const Tensor& lse_part, const Tensor& o,
                                      const Tensor& lse) {
  for (std::int64_t t = 0; t < o.dim(0); ++t) {
    for (std::int64_t head = 0; head < o.dim(1); ++head) {
      const double a = get(lse, {head, t});
      const double b = get(lse_part, {head, t});
      if (std::isinf(b) && b < 0) continue;
      const double joint = std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
      for (std::int64_t d = 0; d < o.dim(2); ++d)
        set(o, {t, head, d},
            std::exp(a - joint) * get(o, {t, head, d}) + std::exp(b - joint) * get(o_part, {t, head, d}));
      set(lse, {head, t}, joint);
    }
  }
}

}  // namespace slimpipe::test
