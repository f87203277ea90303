#pragma once
// Attention in double precision, one query and one key at a time: the definition, without tiles.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "slimpipe/device/operators.h"

#include "support/generate.h"

namespace slimpipe::testing {

/// All row-major: o, dq [T, N, D]; lse, delta [N, T]; dk, dv one [T, K, D] a block. The gradients are those
/// of sum(o ∘ d_o).
struct AttentionReference {
  std::vector<double> o;
  std::vector<double> lse;
  std::vector<double> delta;
  std::vector<double> dq;
  std::vector<std::vector<double>> dk;
  std::vector<std::vector<double>> dv;
};

/// One head's row of a [T, heads, D] tensor.
inline std::vector<double> head_row(const Tensor& x, std::int64_t token, std::int64_t head) {
  std::vector<double> row(static_cast<std::size_t>(x.dim(2)));
  for (std::size_t d = 0; d < row.size(); ++d)
    row[d] = load_element(x, token * x.stride(0) + head * x.stride(1) + static_cast<std::int64_t>(d));
  return row;
}

inline double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// y += factor · x
inline void add_scaled(double factor, std::span<const double> x, std::span<double> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += factor * x[i];
}

/// The row of `head` and `token` in row-major [T, heads, D] values.
inline std::span<double> row_of(std::vector<double>& values, std::int64_t token, std::int64_t heads,
                                std::int64_t head, std::int64_t head_size) {
  return std::span(values).subspan(static_cast<std::size_t>((token * heads + head) * head_size),
                                   static_cast<std::size_t>(head_size));
}

/// Position of the first key in the document that holds `position`.
inline std::int64_t document_start(std::span<const std::int64_t> starts, std::int64_t position) {
  std::int64_t start = 0;
  for (const std::int64_t s : starts)
    if (s <= position) start = s;
  return start;
}

/// Whether the query at `query_position` sees the key at `key_position`.
inline bool sees(std::span<const std::int64_t> starts, std::int64_t query_position,
                 std::int64_t key_position) {
  return key_position <= query_position && key_position >= document_start(starts, query_position);
}

/// A key that a query sees, and its weight.
struct SeenKey {
  std::size_t block;
  std::int64_t token;
  double weight;
};

/// What the query `token` of `head` sees, weights normalised; gives its lse.
inline double seen_keys(const device::AttentionForward& args, std::int64_t token, std::int64_t head,
                        std::vector<SeenKey>& seen) {
  const std::vector<double> q = head_row(args.q, token, head);
  seen.clear();
  double maximum = -std::numeric_limits<double>::infinity();
  for (std::size_t b = 0; b < args.blocks.size(); ++b) {
    const device::KvBlock& block = args.blocks[b];
    const std::int64_t kv_head = head / (args.q.dim(1) / block.k.dim(1));
    for (std::int64_t j = 0; j < block.k.dim(0); ++j) {
      if (!sees(args.document_starts, args.query_position + token, block.first_position + j)) continue;
      const double score = static_cast<double>(args.scale) * dot(q, head_row(block.k, j, kv_head));
      maximum = std::max(maximum, score);
      seen.push_back({b, j, score});
    }
  }
  double sum = 0;
  for (SeenKey& key : seen) sum += key.weight = std::exp(key.weight - maximum);
  for (SeenKey& key : seen) key.weight /= sum;
  return seen.empty() ? maximum : maximum + std::log(sum);
}

/// Forward, and where d_o is not empty backward; the outputs of `args` are not looked at.
inline AttentionReference reference_attention(const device::AttentionForward& args, const Tensor& d_o = {}) {
  const std::int64_t tokens = args.q.dim(0);
  const std::int64_t heads = args.q.dim(1);
  const std::int64_t head_size = args.q.dim(2);
  const auto zeros = [](std::int64_t n) { return std::vector<double>(static_cast<std::size_t>(n)); };
  AttentionReference result{.o = zeros(args.q.size()),
                            .lse = zeros(heads * tokens),
                            .delta = zeros(heads * tokens),
                            .dq = zeros(args.q.size()),
                            .dk = {},
                            .dv = {}};
  for (const device::KvBlock& block : args.blocks) {
    result.dk.push_back(zeros(block.k.size()));
    result.dv.push_back(zeros(block.v.size()));
  }
  std::vector<SeenKey> seen;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto statistic = static_cast<std::size_t>(head * tokens + t);
      result.lse[statistic] = seen_keys(args, t, head, seen);
      const std::span<double> o = row_of(result.o, t, heads, head, head_size);
      for (const SeenKey& key : seen) {
        const device::KvBlock& block = args.blocks[key.block];
        add_scaled(key.weight, head_row(block.v, key.token, head / (heads / block.k.dim(1))), o);
      }
      if (d_o.empty()) continue;
      const std::vector<double> d_row = head_row(d_o, t, head);
      const std::vector<double> q = head_row(args.q, t, head);
      result.delta[statistic] = dot(o, d_row);
      for (const SeenKey& key : seen) {
        const device::KvBlock& block = args.blocks[key.block];
        const std::int64_t kv_heads = block.k.dim(1);
        const std::int64_t kv_head = head / (heads / kv_heads);
        const double d_weight = dot(d_row, head_row(block.v, key.token, kv_head));
        const double d_score =
            static_cast<double>(args.scale) * key.weight * (d_weight - result.delta[statistic]);
        add_scaled(key.weight, d_row, row_of(result.dv[key.block], key.token, kv_heads, kv_head, head_size));
        add_scaled(d_score, q, row_of(result.dk[key.block], key.token, kv_heads, kv_head, head_size));
        add_scaled(d_score, head_row(block.k, key.token, kv_head),
                   row_of(result.dq, t, heads, head, head_size));
      }
    }
  }
  return result;
}

}  // namespace slimpipe::testing
