#pragma once
// Every operator of the backend interface in plain loops and double arithmetic, rounded once to the
// storage type: slow, obviously right, and what the fast backends and the model are compared with.

#include <algorithm>

#include "slimpipe/core/split_float.h"
#include "slimpipe/device/operators.h"

#include "support/reference_attention.h"
#include "support/reference_elements.h"

namespace slimpipe::test {

class ReferenceOperators final : public device::Operators {
 public:
  using Stream = device::Stream;

  // --- matrix products
  void gemm(Stream&, const device::Gemm& g, Tensor) override {
    const std::int64_t m = g.c.dim(0);
    const std::int64_t n = g.c.dim(1);
    const std::int64_t depth = g.transpose_a ? g.a.dim(0) : g.a.dim(1);
    expect_type("b", g.b, g.a.dtype());
    if (g.transpose_a) {
      expect_shape("a", g.a, {depth, m});
    } else {
      expect_shape("a", g.a, {m, depth});
    }
    if (g.transpose_b) {
      expect_shape("b", g.b, {n, depth});
    } else {
      expect_shape("b", g.b, {depth, n});
    }
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = g.accumulate ? get(g.c, {i, j}) : 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += (g.transpose_a ? get(g.a, {k, i}) : get(g.a, {i, k})) *
                 (g.transpose_b ? get(g.b, {j, k}) : get(g.b, {k, j}));
        }
        set(g.c, {i, j}, sum);
      }
    }
  }
  std::int64_t gemm_workspace_bytes(const device::Gemm&) override { return 0; }

  // --- attention
  void attention_forward(Stream&, const device::AttentionForward& a, Tensor) override {
    reference_attention_forward(a);
  }
  std::int64_t attention_forward_workspace_bytes(const device::AttentionForward&) override { return 0; }

  void merge_attention(Stream&, Tensor o_part, Tensor lse_part, Tensor o, Tensor lse) override {
    reference_merge_attention(o_part, lse_part, o, lse);
  }

  void attention_delta(Stream&, Tensor o, Tensor d_o, Tensor delta) override {
    expect_shape("d_o", d_o, {o.dim(0), o.dim(1), o.dim(2)});
    expect_shape("delta", delta, {o.dim(1), o.dim(0)});
    for (std::int64_t t = 0; t < o.dim(0); ++t) {
      for (std::int64_t head = 0; head < o.dim(1); ++head) {
        double sum = 0;
        for (std::int64_t d = 0; d < o.dim(2); ++d) sum += get(o, {t, head, d}) * get(d_o, {t, head, d});
        set(delta, {head, t}, sum);
      }
    }
  }

  void attention_backward(Stream&, const device::AttentionBackward& a, Tensor) override {
    reference_attention_backward(a);
  }
  std::int64_t attention_backward_workspace_bytes(const device::AttentionBackward&) override { return 0; }

  // --- norms
  void rms_norm_forward(Stream&, Tensor x, Tensor weight, float epsilon, Tensor y, Tensor rstd) override {
    const std::int64_t hidden = x.dim(1);
    expect_shape("weight", weight, {hidden});
    expect_shape("y", y, {x.dim(0), hidden});
    expect_shape("rstd", rstd, {x.dim(0)});
    for (std::int64_t t = 0; t < x.dim(0); ++t) {
      double squares = 0;
      for (std::int64_t i = 0; i < hidden; ++i) squares += get(x, {t, i}) * get(x, {t, i});
      const double r = 1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(epsilon));
      set(rstd, {t}, r);
      for (std::int64_t i = 0; i < hidden; ++i) set(y, {t, i}, get(x, {t, i}) * r * get(weight, {i}));
    }
  }

  void add_rms_norm_forward(Stream& stream, Tensor x, Tensor residual, Tensor weight, float epsilon,
                            Tensor sum, Tensor y, Tensor rstd) override {
    add(stream, x, residual, sum);
    rms_norm_forward(stream, sum, weight, epsilon, y, rstd);
  }

  void rms_norm_backward(Stream&, Tensor dy, Tensor x, Tensor weight, Tensor rstd, Tensor residual_gradient,
                         Tensor dx, Tensor d_weight, Tensor) override {
    const std::int64_t tokens = x.dim(0);
    const std::int64_t hidden = x.dim(1);
    expect_shape("dy", dy, {tokens, hidden});
    expect_shape("dx", dx, {tokens, hidden});
    expect_shape("d_weight", d_weight, {hidden});
    expect_type("d_weight", d_weight, DType::kF32);
    std::vector<double> weight_sum(static_cast<std::size_t>(hidden));
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double r = get(rstd, {t});
      double projection = 0;  // mean over the row of dy · weight · (x · rstd)
      for (std::int64_t i = 0; i < hidden; ++i) {
        projection += get(dy, {t, i}) * get(weight, {i}) * get(x, {t, i}) * r / static_cast<double>(hidden);
        weight_sum[static_cast<std::size_t>(i)] += get(dy, {t, i}) * get(x, {t, i}) * r;
      }
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double gradient = r * (get(dy, {t, i}) * get(weight, {i}) - get(x, {t, i}) * r * projection);
        set(dx, {t, i}, gradient + (residual_gradient.empty() ? 0 : get(residual_gradient, {t, i})));
      }
    }
    for (std::int64_t i = 0; i < hidden; ++i) add_to(d_weight, {i}, weight_sum[static_cast<std::size_t>(i)]);
  }
  std::int64_t rms_norm_backward_workspace_bytes(std::int64_t, std::int64_t) override { return 0; }

  // --- rotary position embedding
  void rope_table(Stream&, Tensor inverse_frequency, std::int64_t first_position, float magnitude, Tensor cos,
                  Tensor sin) override {
    const std::int64_t half = inverse_frequency.dim(0);
    expect_shape("cos", cos, {cos.dim(0), half});
    expect_shape("sin", sin, {cos.dim(0), half});
    for (std::int64_t t = 0; t < cos.dim(0); ++t) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(first_position + t) * get(inverse_frequency, {i});
        set(cos, {t, i}, std::cos(angle) * static_cast<double>(magnitude));
        set(sin, {t, i}, std::sin(angle) * static_cast<double>(magnitude));
      }
    }
  }

  void rope_forward(Stream&, Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v) override {
    const std::int64_t head_size = q.dim(2);
    expect_shape("qkv", qkv, {q.dim(0), (q.dim(1) + k.dim(1) + v.dim(1)) * head_size});
    const std::int64_t k_column = q.dim(1) * head_size;
    const std::int64_t v_column = k_column + k.dim(1) * head_size;
    rotate_heads(qkv, 0, cos, sin, q);
    rotate_heads(qkv, k_column, cos, sin, k);
    for (std::int64_t t = 0; t < v.dim(0); ++t) {
      for (std::int64_t head = 0; head < v.dim(1); ++head) {
        for (std::int64_t d = 0; d < head_size; ++d) {
          set(v, {t, head, d}, get(qkv, {t, v_column + head * head_size + d}));
        }
      }
    }
  }

  void rope_backward(Stream&, Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin,
                     Tensor d_qkv) override {
    const std::int64_t head_size = dq.dim(2);
    expect_shape("d_qkv", d_qkv, {dq.dim(0), (dq.dim(1) + dk.dim(1) + dv.dim(1)) * head_size});
    const std::int64_t k_column = dq.dim(1) * head_size;
    const std::int64_t v_column = k_column + dk.dim(1) * head_size;
    rotate_heads_back(dq, cos, sin, d_qkv, 0);
    rotate_heads_back(dk, cos, sin, d_qkv, k_column);
    for (std::int64_t t = 0; t < dv.dim(0); ++t) {
      for (std::int64_t head = 0; head < dv.dim(1); ++head) {
        for (std::int64_t d = 0; d < head_size; ++d) {
          set(d_qkv, {t, v_column + head * head_size + d}, get(dv, {t, head, d}));
        }
      }
    }
  }

  // --- feed-forward gate
  void swiglu_forward(Stream&, Tensor gate_up, Tensor y) override {
    const std::int64_t ffn = y.dim(1);
    expect_shape("gate_up", gate_up, {y.dim(0), 2 * ffn});
    for (std::int64_t t = 0; t < y.dim(0); ++t) {
      for (std::int64_t i = 0; i < ffn; ++i) {
        const double gate = get(gate_up, {t, i});
        set(y, {t, i}, gate / (1 + std::exp(-gate)) * get(gate_up, {t, ffn + i}));
      }
    }
  }

  void swiglu_backward(Stream&, Tensor dy, Tensor gate_up, Tensor d_gate_up) override {
    const std::int64_t ffn = dy.dim(1);
    expect_shape("gate_up", gate_up, {dy.dim(0), 2 * ffn});
    expect_shape("d_gate_up", d_gate_up, {dy.dim(0), 2 * ffn});
    for (std::int64_t t = 0; t < dy.dim(0); ++t) {
      for (std::int64_t i = 0; i < ffn; ++i) {
        const double gate = get(gate_up, {t, i});
        const double up = get(gate_up, {t, ffn + i});
        const double gradient = get(dy, {t, i});
        const double sigmoid = 1 / (1 + std::exp(-gate));
        set(d_gate_up, {t, i}, gradient * up * sigmoid * (1 + gate * (1 - sigmoid)));
        set(d_gate_up, {t, ffn + i}, gradient * gate * sigmoid);
      }
    }
  }

  // --- embedding and loss
  void embedding_forward(Stream&, Tensor tokens, Tensor table, Tensor y) override {
    expect_shape("y", y, {tokens.dim(0), table.dim(1)});
    for (std::int64_t t = 0; t < tokens.dim(0); ++t) {
      const std::int64_t token = tokens.as<std::int32_t>()[t];
      for (std::int64_t i = 0; i < table.dim(1); ++i) set(y, {t, i}, get(table, {token, i}));
    }
  }

  void embedding_backward(Stream&, Tensor tokens, Tensor dy, Tensor d_table) override {
    expect_shape("dy", dy, {tokens.dim(0), d_table.dim(1)});
    expect_type("d_table", d_table, DType::kF32);
    for (std::int64_t t = 0; t < tokens.dim(0); ++t) {
      const std::int64_t token = tokens.as<std::int32_t>()[t];
      for (std::int64_t i = 0; i < d_table.dim(1); ++i) add_to(d_table, {token, i}, get(dy, {t, i}));
    }
  }

  void cross_entropy(Stream&, Tensor logits, Tensor targets, float gradient_scale, Tensor loss_sum,
                     Tensor d_logits) override {
    const std::int64_t vocabulary = logits.dim(1);
    expect_type("logits", logits, DType::kF32);
    expect_type("loss_sum", loss_sum, DType::kF64);
    expect_shape("targets", targets, {logits.dim(0)});
    std::vector<double> row(static_cast<std::size_t>(vocabulary));
    for (std::int64_t t = 0; t < logits.dim(0); ++t) {
      for (std::int64_t i = 0; i < vocabulary; ++i) row[static_cast<std::size_t>(i)] = get(logits, {t, i});
      const std::int64_t target = targets.as<std::int32_t>()[t];
      const double maximum = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit - maximum);
      const double lse = maximum + std::log(sum);
      if (target >= 0) add_to(loss_sum, {0}, lse - row[static_cast<std::size_t>(target)]);
      if (d_logits.empty()) continue;
      for (std::int64_t i = 0; i < vocabulary; ++i) {
        const double softmax = std::exp(row[static_cast<std::size_t>(i)] - lse);
        const double gradient = (softmax - (i == target ? 1 : 0)) * static_cast<double>(gradient_scale);
        set(d_logits, {t, i}, target >= 0 ? gradient : 0);
      }
    }
  }

  // --- optimizer and plain memory
  static double load_split(const device::AdamW& a, std::int64_t i) {
    return static_cast<double>(join({a.parameter.as<BFloat16>()[i], a.remainder.as<std::int16_t>()[i]}));
  }
  static void store_split(const device::AdamW& a, std::int64_t i, double value) {
    const SplitFloat parts = split(static_cast<float>(value));
    a.parameter.as<BFloat16>()[i] = parts.weight;
    a.remainder.as<std::int16_t>()[i] = parts.remainder;
  }
  void adamw(Stream&, const device::AdamW& a) override {
    for (std::int64_t i = 0; i < a.parameter.size(); ++i) {
      const double gradient = load(a.gradient, i) * a.gradient_scale;
      const double m = a.beta1 * load(a.moment1, i) + (1 - a.beta1) * gradient;
      const double v = a.beta2 * load(a.moment2, i) + (1 - a.beta2) * gradient * gradient;
      const double m_hat = m / (1 - std::pow(a.beta1, static_cast<double>(a.step)));
      const double v_hat = v / (1 - std::pow(a.beta2, static_cast<double>(a.step)));
      const double old = a.remainder.empty() ? load(a.parameter, i) : load_split(a, i);
      const double update = m_hat / (std::sqrt(v_hat) + a.epsilon) + a.weight_decay * old;
      store(a.moment1, i, m);
      store(a.moment2, i, v);
      const double updated = old - a.learning_rate * update;
      if (a.remainder.empty()) {
        store(a.parameter, i, updated);
      } else {
        store_split(a, i, updated);
      }
    }
  }

  void sum_of_squares(Stream&, Tensor x, Tensor result) override {
    double sum = 0;
    for (std::int64_t i = 0; i < x.size(); ++i) sum += load(x, i) * load(x, i);
    store(result, 0, sum);
  }

  void add(Stream&, Tensor a, Tensor b, Tensor y) override {
    SLIMPIPE_CHECK(a.contiguous() && b.contiguous() && y.contiguous() && a.size() == b.size() &&
                       a.size() == y.size() && a.dtype() == b.dtype() && a.dtype() == y.dtype(),
                   "reference add: {} + {} -> {}", a.describe(), b.describe(), y.describe());
    for (std::int64_t i = 0; i < y.size(); ++i) store(y, i, load(a, i) + load(b, i));
  }

  void copy(Stream&, Tensor x, Tensor y) override {
    SLIMPIPE_CHECK(x.size() == y.size(), "reference copy: {} -> {}", x.describe(), y.describe());
    const std::int64_t columns = x.rank() == 0 ? 1 : std::max<std::int64_t>(1, x.dim(x.rank() - 1));
    const Tensor from = x.contiguous() ? x.reshape({x.size() / columns, columns}) : x;
    const Tensor to = y.contiguous() ? y.reshape({y.size() / columns, columns}) : y;
    for (std::int64_t i = 0; i < from.dim(0); ++i) {
      for (std::int64_t j = 0; j < columns; ++j) set(to, {i, j}, get(from, {i, j}));
    }
  }

  void zero(Stream&, Tensor x) override {
    SLIMPIPE_CHECK(x.contiguous(), "reference zero of the strided tensor {}", x.describe());
    for (std::int64_t i = 0; i < x.size(); ++i) store(x, i, 0);
  }

 private:
  /// y[t, head, :] = rotation by the row's angles of x[t, column + head·D ...].
  static void rotate_heads(Tensor x, std::int64_t column, Tensor cos, Tensor sin, Tensor y) {
    const std::int64_t half = y.dim(2) / 2;
    for (std::int64_t t = 0; t < y.dim(0); ++t) {
      for (std::int64_t head = 0; head < y.dim(1); ++head) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double first = get(x, {t, column + head * 2 * half + i});
          const double second = get(x, {t, column + head * 2 * half + half + i});
          set(y, {t, head, i}, first * get(cos, {t, i}) - second * get(sin, {t, i}));
          set(y, {t, head, half + i}, second * get(cos, {t, i}) + first * get(sin, {t, i}));
        }
      }
    }
  }

  /// The transposed rotation, written to columns from `column` on.
  static void rotate_heads_back(Tensor dy, Tensor cos, Tensor sin, Tensor dx, std::int64_t column) {
    const std::int64_t half = dy.dim(2) / 2;
    for (std::int64_t t = 0; t < dy.dim(0); ++t) {
      for (std::int64_t head = 0; head < dy.dim(1); ++head) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double first = get(dy, {t, head, i});
          const double second = get(dy, {t, head, half + i});
          set(dx, {t, column + head * 2 * half + i}, first * get(cos, {t, i}) + second * get(sin, {t, i}));
          set(dx, {t, column + head * 2 * half + half + i},
              second * get(cos, {t, i}) - first * get(sin, {t, i}));
        }
      }
    }
  }
};

}  // namespace slimpipe::test
