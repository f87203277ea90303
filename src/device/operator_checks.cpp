#include "device/operator_checks.h"

#include <initializer_list>
#include <string>

namespace slimpipe::device {

namespace {

bool is_compute(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}

/// What tensors of one call of one operator must be.
class Expect {
 public:
  explicit Expect(const char* name) : name_(name) {}

  void compute_type(const char* what, const Tensor& x) const {
    SLIMPIPE_CHECK(is_compute(x.dtype()), "{}: {} is {}, expected fp32 or bf16", name_, what, x.describe());
  }
  void type(const char* what, const Tensor& x, DType dtype) const {
    SLIMPIPE_CHECK(x.dtype() == dtype, "{}: {} is {}, expected {}", name_, what, x.describe(),
                   slimpipe::name_of(dtype));
  }
  void rank(const char* what, const Tensor& x, int rank) const {
    SLIMPIPE_CHECK(x.rank() == rank, "{}: {} is {}, expected {} dimensions", name_, what, x.describe(), rank);
  }
  void contiguous(const char* what, const Tensor& x) const {
    SLIMPIPE_CHECK(x.contiguous(), "{}: {} {} has strides, expected contiguous", name_, what, x.describe());
  }
  void shape(const char* what, const Tensor& x, std::initializer_list<std::int64_t> dims) const {
    const Tensor expected(nullptr, x.dtype(), dims);
    bool same = x.rank() == expected.rank();
    for (int i = 0; same && i < x.rank(); ++i) same = x.dim(i) == expected.dim(i);
    SLIMPIPE_CHECK(same, "{}: {} is {}, expected {}", name_, what, x.describe(), expected.describe());
  }
  /// Type and shape; rows may be strided.
  void rows(const char* what, const Tensor& x, DType dtype, std::int64_t rows, std::int64_t columns) const {
    type(what, x, dtype);
    shape(what, x, {rows, columns});
  }
  /// Type and shape, contiguous.
  void dense(const char* what, const Tensor& x, DType dtype, std::initializer_list<std::int64_t> dims) const {
    type(what, x, dtype);
    shape(what, x, dims);
    contiguous(what, x);
  }
  void same_shape(const char* what, const Tensor& x, const Tensor& other) const {
    bool same = x.rank() == other.rank();
    for (int i = 0; same && i < x.rank(); ++i) same = x.dim(i) == other.dim(i);
    SLIMPIPE_CHECK(same, "{}: {} is {}, expected the shape of {}", name_, what, x.describe(),
                   other.describe());
  }
  /// Contiguous, or a matrix whose rows may be strided.
  void matrix_or_contiguous(const char* what, const Tensor& x) const {
    SLIMPIPE_CHECK(x.rank() == 2 || x.contiguous(), "{}: {} {} has strides, allowed only of matrices", name_,
                   what, x.describe());
  }

 private:
  const char* name_;
};

/// qkv [T, (N + 2K)·D] and its three parts [T, heads, D], with cos and sin [T, D/2].
void check_rope_parts(const char* name, Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v,
                      DType part_type) {
  const Expect expect(name);
  expect.compute_type("qkv", qkv);
  expect.rank("q", q, 3);
  expect.rank("k", k, 3);
  const std::int64_t tokens = q.dim(0);
  const std::int64_t size = q.dim(2);
  SLIMPIPE_CHECK(size > 0 && size % 2 == 0, "{}: q is {}, expected an even head size", name, q.describe());
  expect.dense("q", q, part_type, {tokens, q.dim(1), size});
  expect.dense("k", k, part_type, {tokens, k.dim(1), size});
  expect.dense("v", v, part_type, {tokens, k.dim(1), size});
  expect.rows("qkv", qkv, qkv.dtype(), tokens, (q.dim(1) + 2 * k.dim(1)) * size);
  expect.dense("cos", cos, DType::kF32, {tokens, size / 2});
  expect.dense("sin", sin, DType::kF32, {tokens, size / 2});
}

}  // namespace

void check_workspace(const char* name, Tensor workspace, std::int64_t bytes_needed) {
  if (bytes_needed == 0) return;
  SLIMPIPE_CHECK(workspace.data() != nullptr && workspace.contiguous() && workspace.bytes() >= bytes_needed,
                 "{}: the workspace is {}, expected {} bytes", name, workspace.describe(), bytes_needed);
}

void check_gemm(const Gemm& gemm) {
  const Expect expect("gemm");
  expect.rank("a", gemm.a, 2);
  expect.compute_type("a", gemm.a);
  expect.rank("c", gemm.c, 2);
  const std::int64_t m = gemm.c.dim(0);
  const std::int64_t n = gemm.c.dim(1);
  const std::int64_t k = gemm.a.dim(gemm.transpose_a ? 0 : 1);
  expect.shape("a", gemm.a, {gemm.transpose_a ? k : m, gemm.transpose_a ? m : k});
  expect.rows("b", gemm.b, gemm.a.dtype(), gemm.transpose_b ? n : k, gemm.transpose_b ? k : n);
  SLIMPIPE_CHECK(gemm.c.dtype() == DType::kF32 || gemm.c.dtype() == gemm.a.dtype(),
                 "gemm: c is {}, expected fp32 or the type of a, {}", gemm.c.describe(), gemm.a.describe());
}

void check_rms_norm_forward(const char* name, Tensor x, Tensor weight, Tensor y, Tensor rstd) {
  const Expect expect(name);
  expect.rank("x", x, 2);
  expect.compute_type("x", x);
  expect.dense("weight", weight, x.dtype(), {x.dim(1)});
  expect.rows("y", y, x.dtype(), x.dim(0), x.dim(1));
  expect.dense("rstd", rstd, DType::kF32, {x.dim(0)});
}

void check_add_rms_norm_forward(Tensor x, Tensor residual, Tensor weight, Tensor sum, Tensor y, Tensor rstd) {
  constexpr const char* kName = "add_rms_norm_forward";
  check_rms_norm_forward(kName, x, weight, y, rstd);
  Expect(kName).rows("residual", residual, x.dtype(), x.dim(0), x.dim(1));
  Expect(kName).rows("sum", sum, x.dtype(), x.dim(0), x.dim(1));
}

void check_rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor rstd, Tensor residual_gradient,
                             Tensor dx, Tensor d_weight) {
  const Expect expect("rms_norm_backward");
  expect.rank("x", x, 2);
  expect.compute_type("x", x);
  expect.rows("dy", dy, x.dtype(), x.dim(0), x.dim(1));
  expect.dense("weight", weight, x.dtype(), {x.dim(1)});
  expect.dense("rstd", rstd, DType::kF32, {x.dim(0)});
  if (!residual_gradient.empty())
    expect.rows("residual_gradient", residual_gradient, x.dtype(), x.dim(0), x.dim(1));
  expect.rows("dx", dx, x.dtype(), x.dim(0), x.dim(1));
  expect.dense("d_weight", d_weight, DType::kF32, {x.dim(1)});
}

void check_rope_table(Tensor inverse_frequency, Tensor cos, Tensor sin) {
  const Expect expect("rope_table");
  expect.rank("cos", cos, 2);
  expect.dense("cos", cos, DType::kF32, {cos.dim(0), cos.dim(1)});
  expect.dense("sin", sin, DType::kF32, {cos.dim(0), cos.dim(1)});
  expect.dense("inverse_frequency", inverse_frequency, DType::kF64, {cos.dim(1)});
}

void check_rope_forward(Tensor qkv, Tensor cos, Tensor sin, Tensor q, Tensor k, Tensor v) {
  check_rope_parts("rope_forward", qkv, cos, sin, q, k, v, qkv.dtype());
}

void check_rope_backward(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, Tensor d_qkv) {
  check_rope_parts("rope_backward", d_qkv, cos, sin, dq, dk, dv, DType::kF32);
}

void check_swiglu_forward(Tensor gate_up, Tensor y) {
  const Expect expect("swiglu_forward");
  expect.rank("y", y, 2);
  expect.compute_type("y", y);
  expect.rows("gate_up", gate_up, y.dtype(), y.dim(0), 2 * y.dim(1));
}

void check_swiglu_backward(Tensor dy, Tensor gate_up, Tensor d_gate_up) {
  const Expect expect("swiglu_backward");
  expect.rank("dy", dy, 2);
  expect.compute_type("dy", dy);
  expect.rows("gate_up", gate_up, dy.dtype(), dy.dim(0), 2 * dy.dim(1));
  expect.rows("d_gate_up", d_gate_up, dy.dtype(), dy.dim(0), 2 * dy.dim(1));
}

void check_embedding_forward(Tensor tokens, Tensor table, Tensor y) {
  const Expect expect("embedding_forward");
  expect.rank("y", y, 2);
  expect.compute_type("y", y);
  expect.dense("tokens", tokens, DType::kI32, {y.dim(0)});
  expect.rank("table", table, 2);
  expect.rows("table", table, y.dtype(), table.dim(0), y.dim(1));
}

void check_embedding_backward(Tensor tokens, Tensor dy, Tensor d_table) {
  const Expect expect("embedding_backward");
  expect.rank("dy", dy, 2);
  expect.compute_type("dy", dy);
  expect.dense("tokens", tokens, DType::kI32, {dy.dim(0)});
  expect.rank("d_table", d_table, 2);
  expect.rows("d_table", d_table, DType::kF32, d_table.dim(0), dy.dim(1));
}

void check_cross_entropy(Tensor logits, Tensor targets, Tensor loss_sum, Tensor d_logits) {
  const Expect expect("cross_entropy");
  expect.rank("logits", logits, 2);
  expect.type("logits", logits, DType::kF32);
  expect.dense("targets", targets, DType::kI32, {logits.dim(0)});
  expect.dense("loss_sum", loss_sum, DType::kF64, {1});
  if (d_logits.empty()) return;
  expect.compute_type("d_logits", d_logits);
  expect.shape("d_logits", d_logits, {logits.dim(0), logits.dim(1)});
}

void check_adamw(const AdamW& step) {
  const Expect expect("adamw");
  const std::int64_t n = step.parameter.size();
  expect.compute_type("parameter", step.parameter);
  expect.shape("parameter", step.parameter, {n});
  expect.contiguous("parameter", step.parameter);
  if (step.parameter.dtype() == DType::kBF16) {
    expect.dense("remainder", step.remainder, DType::kI16, {n});
  } else {
    SLIMPIPE_CHECK(step.remainder.empty(), "adamw: remainder is {}, expected none with an fp32 parameter",
                   step.remainder.describe());
  }
  expect.dense("gradient", step.gradient, DType::kF32, {n});
  expect.dense("moment1", step.moment1, DType::kF32, {n});
  expect.dense("moment2", step.moment2, DType::kF32, {n});
  SLIMPIPE_CHECK(step.step >= 1, "adamw: step is {}, expected 1 or more", step.step);
}

void check_sum_of_squares(Tensor x, Tensor result) {
  const Expect expect("sum_of_squares");
  expect.type("x", x, DType::kF32);
  expect.contiguous("x", x);
  expect.dense("result", result, DType::kF64, {1});
}

void check_add(Tensor a, Tensor b, Tensor y) {
  const Expect expect("add");
  expect.compute_type("a", a);
  expect.type("b", b, a.dtype());
  expect.type("y", y, a.dtype());
  expect.same_shape("b", b, a);
  expect.same_shape("y", y, a);
  expect.matrix_or_contiguous("a", a);
  expect.matrix_or_contiguous("b", b);
  expect.matrix_or_contiguous("y", y);
}

void check_copy(Tensor x, Tensor y) {
  const Expect expect("copy");
  SLIMPIPE_CHECK(x.dtype() == y.dtype() || (is_compute(x.dtype()) && is_compute(y.dtype())),
                 "copy: {} to {}, expected one type, or fp32 and bf16", x.describe(), y.describe());
  expect.same_shape("y", y, x);
  expect.matrix_or_contiguous("x", x);
  expect.matrix_or_contiguous("y", y);
}

void check_zero(Tensor x) {
  Expect("zero").matrix_or_contiguous("x", x);
}

}  // namespace slimpipe::device
