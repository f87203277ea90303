// Attention on the CPU against the double-precision definition, over odd shapes.

#include "device/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/ranges.h>
#include <span>
#include <string>
#include <vector>

#include "slimpipe/device/operators.h"

#include "support/catch.h"
#include "support/compare.h"
#include "support/generate.h"
#include "support/attention_reference.h"

namespace slimpipe::device {
namespace {

using testing::compare;
using testing::OwnedTensor;

struct Shape {
  std::int64_t tokens = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 8;
  std::int64_t query_position = 0;
  std::vector<std::int64_t> blocks;  ///< lengths; empty: one block that ends with the queries
  std::vector<std::int64_t> documents;
  std::int64_t first_key = 0;
  double query_scale = 1;

  [[nodiscard]] std::vector<std::int64_t> lengths() const {
    return blocks.empty() ? std::vector{query_position + tokens - first_key} : blocks;
  }
  [[nodiscard]] std::string describe() const {
    return fmt::format("T {} N {} K {} D {} from {}, blocks [{}] from {}, documents [{}], queries x {}",
                       tokens, heads, kv_heads, head_size, query_position, fmt::join(lengths(), " "),
                       first_key, fmt::join(documents, " "), query_scale);
  }
};

/// All tensors of one forward and backward. K, V and their gradients live in memory of their own per block.
class Case {
 public:
  Case(const Shape& shape, DType dtype)
      : shape_(shape),
        q(testing::normal(dtype, {shape.tokens, shape.heads, shape.head_size}, 1, shape.query_scale)),
        d_o(testing::normal(dtype, {shape.tokens, shape.heads, shape.head_size}, 2)),
        o(dtype, {shape.tokens, shape.heads, shape.head_size}),
        lse(DType::kF32, {shape.heads, shape.tokens}),
        delta(DType::kF32, {shape.heads, shape.tokens}),
        dq(DType::kF32, {shape.tokens, shape.heads, shape.head_size}) {
    const std::vector<std::int64_t> lengths = shape.lengths();
    std::int64_t keys = 0;
    for (const std::int64_t length : lengths) keys += length;
    // Drawn as one sequence, so that the values do not depend on how it is cut.
    const OwnedTensor all_k = testing::normal(dtype, {keys, shape.kv_heads, shape.head_size}, 3);
    const OwnedTensor all_v = testing::normal(dtype, {keys, shape.kv_heads, shape.head_size}, 4);
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      k.push_back(copy_of(all_k.view().rows(begin, begin + length)));
      v.push_back(copy_of(all_v.view().rows(begin, begin + length)));
      dk.push_back(testing::constant(DType::kF32, {length, shape.kv_heads, shape.head_size}, 0));
      dv.push_back(testing::constant(DType::kF32, {length, shape.kv_heads, shape.head_size}, 0));
      blocks_.push_back({k.back(), v.back(), shape.first_key + begin});
      gradients_.push_back({dk.back(), dv.back()});
      begin += length;
    }
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  [[nodiscard]] AttentionForward forward_arguments() const {
    return {.q = q,
            .query_position = shape_.query_position,
            .blocks = blocks_,
            .document_starts = shape_.documents,
            .scale = scale(),
            .o = o,
            .lse = lse};
  }
  [[nodiscard]] AttentionBackward backward_arguments() const {
    return {.q = q,
            .query_position = shape_.query_position,
            .blocks = blocks_,
            .document_starts = shape_.documents,
            .scale = scale(),
            .d_o = d_o,
            .lse = lse,
            .delta = delta,
            .dq = dq,
            .kv_gradients = gradients_};
  }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_size)); }

  void run_forward(int threads = 1) const {
    const AttentionForward args = forward_arguments();
    const OwnedTensor workspace = poisoned(cpu::attention_forward_workspace_bytes(args, threads));
    cpu::attention_forward(args, workspace, threads);
    CHECK(workspace.intact());
    CHECK((o.intact() && lse.intact()));
  }
  void run_backward(int threads = 1) const {
    cpu::attention_delta(o, d_o, delta);
    const AttentionBackward args = backward_arguments();
    const OwnedTensor workspace = poisoned(cpu::attention_backward_workspace_bytes(args, threads));
    cpu::attention_backward(args, workspace, threads);
    CHECK(workspace.intact());
    CHECK((dq.intact() && delta.intact()));
    for (std::size_t i = 0; i < dk.size(); ++i) CHECK((dk[i].intact() && dv[i].intact()));
  }

  /// All results, bit by bit.
  [[nodiscard]] std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all;
    const auto append = [&](const OwnedTensor& x) {
      const auto bytes = x.bytes();
      all.insert(all.end(), bytes.begin(), bytes.end());
    };
    for (const OwnedTensor* x : {&o, &lse, &dq}) append(*x);
    for (const std::vector<OwnedTensor>* list : {&dk, &dv})
      for (const OwnedTensor& x : *list) append(x);
    return all;
  }

 private:
  static OwnedTensor copy_of(const Tensor& x) {
    OwnedTensor copy(x.dtype(), {x.dim(0), x.dim(1), x.dim(2)});
    testing::fill_values(copy, testing::values_of(x));
    return copy;
  }
  /// A workspace of NaN.
  static OwnedTensor poisoned(std::int64_t bytes) { return {DType::kF32, {bytes / size_of(DType::kF32)}}; }

  Shape shape_;
  std::vector<KvBlock> blocks_;
  std::vector<KvGradientBlock> gradients_;

 public:
  OwnedTensor q, d_o, o, lse, delta, dq;
  std::vector<OwnedTensor> k, v, dk, dv;
};

/// How far fp32 may be from the definition, beyond the table of tolerances: a score's own rounding error
/// grows with its size and becomes a relative error of its weight.
double score_factor(const Shape& shape) {
  return 4.0 + 4.0 * shape.query_scale;
}

/// bf16 products round weights and their gradients to 2^-9 once more; sums of them are compared on the scale
/// of what they sum up. fp32 results of bf16 inputs get the tolerance of bf16.
double bf16_in_fp32(const OwnedTensor& x) {
  return x.view().dtype() == DType::kF32 ? 2000.0 : 1.0;
}

double largest(const std::vector<double>& values) {
  double magnitude = 0;
  for (const double value : values)
    if (std::isfinite(value)) magnitude = std::max(magnitude, std::abs(value));
  return magnitude;
}

void check_close(const char* what, const OwnedTensor& actual, const std::vector<double>& expected,
                 const Shape& shape, DType dtype) {
  double factor = score_factor(shape);
  if (dtype == DType::kBF16) factor = (1.0 + shape.query_scale) * bf16_in_fp32(actual);
  INFO(what << " of " << name_of(dtype) << ", " << shape.describe());
  CHECK(compare(actual, expected, factor, std::max(1.0, largest(expected))) == "");
}

void check_against_reference(const Shape& shape, DType dtype) {
  const Case c(shape, dtype);
  c.run_forward();
  c.run_backward();
  const auto expected = testing::reference_attention(c.forward_arguments(), c.d_o);
  check_close("o", c.o, expected.o, shape, dtype);
  check_close("lse", c.lse, expected.lse, shape, dtype);
  check_close("delta", c.delta, expected.delta, shape, dtype);
  check_close("dq", c.dq, expected.dq, shape, dtype);
  for (std::size_t i = 0; i < c.dk.size(); ++i) {
    check_close("dk", c.dk[i], expected.dk[i], shape, dtype);
    check_close("dv", c.dv[i], expected.dv[i], shape, dtype);
  }
}

void check_both_types(const Shape& shape) {
  check_against_reference(shape, DType::kF32);
  check_against_reference(shape, DType::kBF16);
}

}  // namespace

TEST_CASE("attention equals its definition for any number of tokens and head size", "[ops]") {
  for (const std::int64_t tokens : {1, 3, 17, 64, 65, 130, 257})
    for (const std::int64_t head_size : {8, 40, 64})
      check_both_types({.tokens = tokens, .head_size = head_size});
  for (const std::int64_t head_size : {16, 24, 80, 96, 128, 136, 256})
    check_both_types({.tokens = 66, .head_size = head_size});
}

TEST_CASE("attention shares KV heads among groups of query heads", "[ops]") {
  check_both_types({.tokens = 53, .heads = 6, .kv_heads = 6, .head_size = 16});
  check_both_types({.tokens = 53, .heads = 6, .kv_heads = 2, .head_size = 16});
  check_both_types({.tokens = 130, .heads = 4, .kv_heads = 1, .head_size = 64});
}

TEST_CASE("attention takes queries at any position and KV in any blocks", "[ops]") {
  check_both_types({.tokens = 40, .heads = 2, .head_size = 32, .query_position = 217});
  check_both_types({.tokens = 49, .head_size = 24, .query_position = 100, .blocks = {100, 49}});
  check_both_types({.tokens = 200, .head_size = 64, .query_position = 133, .blocks = {1, 131, 1, 150, 50}});
  check_both_types({.tokens = 5, .head_size = 16, .query_position = 300, .blocks = {1, 1, 1, 298, 2, 1, 1}});
}

TEST_CASE("attention ignores keys after the queries and blocks nobody sees", "[ops]") {
  check_both_types({.tokens = 20, .head_size = 16, .query_position = 30, .blocks = {40, 60, 128, 7}});
  check_both_types(
      {.tokens = 20, .head_size = 16, .query_position = 200, .blocks = {100, 120}, .documents = {0, 205}});
}

TEST_CASE("attention keeps documents apart wherever they start", "[ops]") {
  check_both_types({.tokens = 130, .head_size = 16, .documents = {0, 1, 2, 64, 65, 127}});
  check_both_types(
      {.tokens = 100, .head_size = 40, .query_position = 150, .documents = {0, 33, 140, 151, 199, 300}});
  check_both_types({.tokens = 257,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_size = 64,
                    .query_position = 128,
                    .blocks = {128, 128, 129},
                    .documents = {0, 130, 131, 200, 320}});
}

TEST_CASE("a query that sees no key gives zero, lse of minus infinity and no gradient", "[ops]") {
  check_both_types({.tokens = 70, .head_size = 16, .query_position = 10, .blocks = {60}, .first_key = 50});
  check_both_types({.tokens = 9, .head_size = 16, .query_position = 10, .blocks = {8}, .first_key = 50});
  check_both_types(
      {.tokens = 30, .head_size = 16, .query_position = 100, .blocks = {90}, .documents = {0, 95, 110}});
  const Shape no_blocks{.tokens = 3, .heads = 2, .head_size = 8, .blocks = {0}};
  check_both_types(no_blocks);
}

TEST_CASE("attention is exact about large scores", "[ops]") {
  for (const double scale : {20.0, 80.0, 3000.0}) {
    check_against_reference({.tokens = 65, .head_size = 64, .query_scale = scale}, DType::kF32);
    check_against_reference({.tokens = 65, .head_size = 64, .query_scale = scale}, DType::kBF16);
  }
}

TEST_CASE("attention over no blocks or no queries writes zeros or nothing", "[ops]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Case c({.tokens = 5, .heads = 2, .kv_heads = 2, .head_size = 8, .blocks = {4}}, dtype);
    AttentionForward forward = c.forward_arguments();
    forward.blocks = {};
    const OwnedTensor workspace(DType::kF32, {cpu::attention_forward_workspace_bytes(forward, 1) / 4});
    cpu::attention_forward(forward, workspace, 1);
    CHECK(compare(c.o, std::vector<double>(80, 0.0)) == "");
    CHECK(compare(c.lse, std::vector<double>(10, -std::numeric_limits<double>::infinity())) == "");
    AttentionBackward backward = c.backward_arguments();
    backward.blocks = {};
    backward.kv_gradients = {};
    cpu::attention_delta(c.o, c.d_o, c.delta);
    const OwnedTensor scratch(DType::kF32, {cpu::attention_backward_workspace_bytes(backward, 1) / 4});
    cpu::attention_backward(backward, scratch, 1);
    CHECK(compare(c.dq, std::vector<double>(80, 0.0)) == "");

    const Case empty({.tokens = 0, .head_size = 8, .query_position = 4, .blocks = {4}}, dtype);
    empty.run_forward();
    empty.run_backward();
    CHECK(compare(empty.dk[0], std::vector<double>(32, 0.0)) == "");
  }
}

TEST_CASE("attention's backward agrees with finite differences of its forward", "[ops]") {
  const Shape shape{
      .tokens = 19, .heads = 2, .head_size = 8, .query_position = 6, .blocks = {9, 16}, .documents = {0, 11}};
  const Case c(shape, DType::kF32);
  c.run_forward();
  c.run_backward();
  const auto objective = [&] {
    const Case fresh(shape, DType::kF32);
    testing::fill_values(fresh.q, testing::values_of(c.q));
    for (std::size_t b = 0; b < c.k.size(); ++b) {
      testing::fill_values(fresh.k[b], testing::values_of(c.k[b]));
      testing::fill_values(fresh.v[b], testing::values_of(c.v[b]));
    }
    fresh.run_forward();
    return testing::dot(testing::values_of(fresh.o), testing::values_of(fresh.d_o));
  };
  const auto check_gradient = [&](const Tensor& x, const Tensor& gradient) {
    constexpr double kStep = 0x1p-7;
    for (std::int64_t n = 0; n < x.size(); n += 29) {
      const double value = testing::load_element(x, n);
      testing::store_element(x, n, value + kStep);
      const double up = objective();
      testing::store_element(x, n, value - kStep);
      const double down = objective();
      testing::store_element(x, n, value);
      INFO(x.describe() << " element " << n);
      CHECK(std::abs((up - down) / (2 * kStep) - testing::load_element(gradient, n)) < 2e-3);
    }
  };
  check_gradient(c.q, c.dq);
  for (std::size_t b = 0; b < c.k.size(); ++b) {
    check_gradient(c.k[b], c.dk[b]);
    check_gradient(c.v[b], c.dv[b]);
  }
}

TEST_CASE("attention's KV gradients are added to what is there, dq replaces it", "[ops]") {
  const Shape shape{.tokens = 60, .head_size = 40, .query_position = 3};
  const Case once(shape, DType::kF32);
  once.run_forward();
  once.run_backward();
  const Case twice(shape, DType::kF32);
  twice.run_forward();
  twice.run_backward();
  twice.run_backward();
  const auto doubled = [](const OwnedTensor& x) {
    std::vector<double> values = testing::values_of(x);
    for (double& value : values) value *= 2;
    return values;
  };
  CHECK(compare(twice.dk[0], doubled(once.dk[0])) == "");
  CHECK(compare(twice.dv[0], doubled(once.dv[0])) == "");
  CHECK(twice.dq.bytes() == once.dq.bytes());
}

TEST_CASE("attention does not depend on how KV is cut into blocks", "[ops]") {
  Shape shape{.tokens = 150, .heads = 2, .head_size = 64, .query_position = 150};
  const Case whole(shape, DType::kF32);
  shape.blocks = {37, 1, 112, 90, 60};
  const Case cut(shape, DType::kF32);
  for (const Case* c : {&whole, &cut}) {
    c->run_forward();
    c->run_backward();
  }
  CHECK(compare(cut.o, testing::values_of(whole.o)) == "");
  CHECK(compare(cut.lse, testing::values_of(whole.lse)) == "");
  CHECK(compare(cut.dq, testing::values_of(whole.dq), 4.0) == "");
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < cut.dk.size(); ++i) {
    const std::int64_t end = begin + cut.dk[i].view().dim(0);
    CHECK(compare(cut.dk[i], testing::values_of(whole.dk[0].view().rows(begin, end)), 4.0) == "");
    CHECK(compare(cut.dv[i], testing::values_of(whole.dv[0].view().rows(begin, end)), 4.0) == "");
    begin = end;
  }
}

TEST_CASE("attention gives the same bits again and for any number of threads", "[ops]") {
  const Shape shape{.tokens = 301,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_size = 64,
                    .query_position = 50,
                    .blocks = {50, 301},
                    .documents = {0, 70, 222}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<unsigned char> first;
    for (const int threads : {1, 1, 2, 3}) {
      const Case c(shape, dtype);
      c.run_forward(threads);
      c.run_backward(threads);
      if (first.empty()) first = c.bits();
      CHECK(c.bits() == first);
    }
  }
}

TEST_CASE("attention lets NaN through instead of hiding it", "[ops]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Case c({.tokens = 20, .head_size = 16}, dtype);
    testing::store_element(c.q, 7 * 16 + 3, std::numeric_limits<double>::quiet_NaN());
    c.run_forward();
    const std::vector<double> o = testing::values_of(c.o);
    for (std::size_t n = 0; n < o.size(); ++n) CHECK(std::isnan(o[n]) == (n / 16 == 7));
  }
}

TEST_CASE("attention refuses shapes that do not fit, before it writes", "[ops]") {
  const Case c({.tokens = 6, .heads = 4, .kv_heads = 2, .head_size = 16, .blocks = {2, 4}}, DType::kF32);
  const OwnedTensor workspace(DType::kF32,
                              {cpu::attention_forward_workspace_bytes(c.forward_arguments(), 1) / 4});
  const auto refused = [&](auto change) {
    AttentionForward args = c.forward_arguments();
    std::vector<KvBlock> blocks(args.blocks.begin(), args.blocks.end());
    args.blocks = blocks;
    change(args, blocks);
    CHECK_THROWS_AS(cpu::attention_forward(args, workspace, 1), Error);
  };
  const OwnedTensor odd(DType::kF32, {6, 4, 12});
  const OwnedTensor three_heads(DType::kF32, {2, 3, 16});
  const OwnedTensor bf16(DType::kBF16, {6, 4, 16});
  const std::vector<std::int64_t> descending{5, 3};
  refused([&](AttentionForward& args, auto&) { args.q = odd; });
  refused([&](AttentionForward& args, auto&) { args.o = bf16; });
  refused([&](AttentionForward& args, auto&) { args.lse = c.delta.view().rows(0, 3); });
  refused([&](AttentionForward& args, auto&) { args.document_starts = descending; });
  refused([&](AttentionForward& args, auto&) { args.query_position = -1; });
  refused([&](AttentionForward&, std::vector<KvBlock>& blocks) { blocks[0].k = three_heads; });
  refused([&](AttentionForward&, std::vector<KvBlock>& blocks) { blocks[1].v = blocks[0].v; });
  refused([&](AttentionForward&, std::vector<KvBlock>& blocks) { blocks[1].first_position = 1; });
  CHECK_THROWS_AS(cpu::attention_forward(c.forward_arguments(), workspace, 2), Error);  // needs twice as much
  AttentionBackward backward = c.backward_arguments();
  backward.kv_gradients = backward.kv_gradients.subspan(1);
  CHECK_THROWS_AS(cpu::attention_backward_workspace_bytes(backward, 1), Error);
}

}  // namespace slimpipe::device
