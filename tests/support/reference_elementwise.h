#pragma once
// The operators of device/operators.h other than attention, as plain loops in double precision over
// row-major vectors. They are written from the formulas, for reading, not for speed.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace slimpipe::testing {

using Values = std::vector<double>;

inline std::size_t at(std::int64_t row, std::int64_t columns, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}
inline Values zeros(std::int64_t n) {
  return Values(static_cast<std::size_t>(n), 0.0);
}

/// d/dx of a scalar function by central differences, for every element of x.
inline Values numeric_gradient(const std::function<double(const Values&)>& function, Values x,
                               double step = 1e-5) {
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + step;
    const double above = function(x);
    x[i] = saved - step;
    const double below = function(x);
    x[i] = saved;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// op(A)·op(B) + C, C [M, N] or empty.
inline Values reference_gemm(const Values& a, const Values& b, const Values& c, std::int64_t m,
                             std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b) {
  Values result = c.empty() ? zeros(m * n) : c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a[transpose_a ? at(l, m, i) : at(i, k, l)] * b[transpose_b ? at(j, k, l) : at(l, n, j)];
      result[at(i, n, j)] += sum;
    }
  return result;
}

struct RmsNormResult {
  Values y, rstd;
};
inline RmsNormResult reference_rms_norm(const Values& x, const Values& weight, double epsilon) {
  const auto hidden = std::ssize(weight);
  const auto tokens = std::ssize(x) / hidden;
  RmsNormResult result{zeros(tokens * hidden), zeros(tokens)};
  for (std::int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (std::int64_t i = 0; i < hidden; ++i) squares += x[at(t, hidden, i)] * x[at(t, hidden, i)];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
    result.rstd[static_cast<std::size_t>(t)] = rstd;
    for (std::int64_t i = 0; i < hidden; ++i)
      result.y[at(t, hidden, i)] = x[at(t, hidden, i)] * rstd * weight[static_cast<std::size_t>(i)];
  }
  return result;
}

struct RmsNormGradients {
  Values dx, d_weight;
};
inline RmsNormGradients reference_rms_norm_backward(const Values& dy, const Values& x, const Values& weight,
                                                    double epsilon) {
  const auto hidden = std::ssize(weight);
  const auto tokens = std::ssize(x) / hidden;
  const Values rstd = reference_rms_norm(x, weight, epsilon).rstd;
  RmsNormGradients result{zeros(tokens * hidden), zeros(hidden)};
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double r = rstd[static_cast<std::size_t>(t)];
    double mean = 0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      const std::size_t n = at(t, hidden, i);
      mean += dy[n] * weight[static_cast<std::size_t>(i)] * x[n] * r / static_cast<double>(hidden);
      result.d_weight[static_cast<std::size_t>(i)] += dy[n] * x[n] * r;
    }
    for (std::int64_t i = 0; i < hidden; ++i) {
      const std::size_t n = at(t, hidden, i);
      result.dx[n] = r * (dy[n] * weight[static_cast<std::size_t>(i)] - x[n] * r * mean);
    }
  }
  return result;
}

/// Rotates [T, heads, D] by angles [T, D/2] (negative sign: back).
inline Values reference_rotate(const Values& x, const Values& cos, const Values& sin, std::int64_t tokens,
                               std::int64_t heads, std::int64_t size, double sign = 1) {
  Values y(x.size());
  const std::int64_t half = size / 2;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        const std::size_t first = at(t * heads + h, size, i);
        const std::size_t second = first + static_cast<std::size_t>(half);
        const double c = cos[at(t, half, i)];
        const double s = sign * sin[at(t, half, i)];
        y[first] = x[first] * c - x[second] * s;
        y[second] = x[second] * c + x[first] * s;
      }
  return y;
}

inline double reference_sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

/// gate_up [T, 2F] -> [T, F].
inline Values reference_swiglu(const Values& gate_up, std::int64_t size) {
  const std::int64_t tokens = std::ssize(gate_up) / (2 * size);
  Values y = zeros(tokens * size);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < size; ++i) {
      const double gate = gate_up[at(t, 2 * size, i)];
      y[at(t, size, i)] = gate * reference_sigmoid(gate) * gate_up[at(t, 2 * size, size + i)];
    }
  return y;
}

inline Values reference_swiglu_backward(const Values& dy, const Values& gate_up, std::int64_t size) {
  const std::int64_t tokens = std::ssize(dy) / size;
  Values gradient(gate_up.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < size; ++i) {
      const double gate = gate_up[at(t, 2 * size, i)];
      const double up = gate_up[at(t, 2 * size, size + i)];
      const double s = reference_sigmoid(gate);
      gradient[at(t, 2 * size, i)] = dy[at(t, size, i)] * up * (s + gate * s * (1 - s));
      gradient[at(t, 2 * size, size + i)] = dy[at(t, size, i)] * gate * s;
    }
  return gradient;
}

struct CrossEntropyResult {
  double loss = 0;
  Values d_logits;
};
/// Sum over the rows whose target is not negative; gradient (softmax - onehot) · scale.
inline CrossEntropyResult reference_cross_entropy(const Values& logits,
                                                  const std::vector<std::int64_t>& targets, double scale) {
  const auto tokens = std::ssize(targets);
  const std::int64_t vocabulary = std::ssize(logits) / tokens;
  CrossEntropyResult result{0, Values(logits.size(), 0.0)};
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t target = targets[static_cast<std::size_t>(t)];
    if (target < 0) continue;
    double top = logits[at(t, vocabulary, 0)];
    for (std::int64_t i = 0; i < vocabulary; ++i) top = std::max(top, logits[at(t, vocabulary, i)]);
    double sum = 0;
    for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(logits[at(t, vocabulary, i)] - top);
    result.loss += std::log(sum) + top - logits[at(t, vocabulary, target)];
    for (std::int64_t i = 0; i < vocabulary; ++i)
      result.d_logits[at(t, vocabulary, i)] =
          (std::exp(logits[at(t, vocabulary, i)] - top) / sum - (i == target ? 1.0 : 0.0)) * scale;
  }
  return result;
}

struct AdamWState {
  Values parameter, moment1, moment2;
};
struct AdamWSettings {
  double learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale;
};
/// One step in place, as Loshchilov and Hutter (2019), algorithm 2, with decay scaled by the learning rate.
inline void reference_adamw(AdamWState& state, const Values& gradient, const AdamWSettings& s,
                            std::int64_t step) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * s.gradient_scale;
    state.moment1[i] = s.beta1 * state.moment1[i] + (1 - s.beta1) * g;
    state.moment2[i] = s.beta2 * state.moment2[i] + (1 - s.beta2) * g * g;
    const double m = state.moment1[i] / (1 - std::pow(s.beta1, static_cast<double>(step)));
    const double v = state.moment2[i] / (1 - std::pow(s.beta2, static_cast<double>(step)));
    state.parameter[i] -=
        s.learning_rate * (m / (std::sqrt(v) + s.epsilon) + s.weight_decay * state.parameter[i]);
  }
}

}  // namespace slimpipe::testing
