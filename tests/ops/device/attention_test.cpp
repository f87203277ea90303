// Attention on the CPU against the double-precision definition, over odd shapes.

#include "device/cpu/attention.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "slimpipe/device/operators.h"

#include "support/attention_case.h"
#include "support/attention_reference.h"
#include "support/catch.h"
#include "support/compare.h"
#include "support/generate.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

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

TEST_CASE("attention masks a document's start in keys that all lie before the queries", "[ops]") {
  for (const std::int64_t start : {1, 16, 17, 23, 64, 65})
    check_both_types({.tokens = 40, .head_size = 16, .query_position = 128, .documents = {0, start}});
}

TEST_CASE("a query that sees no key gives zero, lse of minus infinity and no gradient", "[ops]") {
  check_both_types({.tokens = 70, .head_size = 16, .query_position = 10, .blocks = {60}, .first_key = 50});
  check_both_types({.tokens = 9, .head_size = 16, .query_position = 10, .blocks = {8}, .first_key = 50});
  check_both_types(
      {.tokens = 30, .head_size = 16, .query_position = 100, .blocks = {90}, .documents = {0, 95, 110}});
  const AttentionShape no_blocks{.tokens = 3, .heads = 2, .head_size = 8, .blocks = {0}};
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
    const AttentionCase c({.tokens = 5, .heads = 2, .kv_heads = 2, .head_size = 8, .blocks = {4}}, dtype);
    AttentionForward forward = c.forward_arguments();
    forward.blocks = {};
    const OwnedTensor workspace(DType::kF32, {cpu::attention_forward_workspace_bytes(forward, 1) / 4});
    cpu::attention_forward(forward, workspace, 1);
    CHECK(compare(c.o, std::vector<double>(80, 0.0)) == kAgrees);
    CHECK(compare(c.lse, std::vector<double>(10, -std::numeric_limits<double>::infinity())) == kAgrees);
    AttentionBackward backward = c.backward_arguments();
    backward.blocks = {};
    backward.kv_gradients = {};
    cpu::attention_delta(c.o, c.d_o, c.delta);
    const OwnedTensor scratch(DType::kF32, {cpu::attention_backward_workspace_bytes(backward, 1) / 4});
    cpu::attention_backward(backward, scratch, 1);
    CHECK(compare(c.dq, std::vector<double>(80, 0.0)) == kAgrees);

    const AttentionCase empty({.tokens = 0, .head_size = 8, .query_position = 4, .blocks = {4}}, dtype);
    empty.run_forward();
    empty.run_backward();
    CHECK(compare(empty.dk[0], std::vector<double>(32, 0.0)) == kAgrees);
  }
}

TEST_CASE("attention's backward agrees with finite differences of its forward", "[ops]") {
  const AttentionShape shape{
      .tokens = 19, .heads = 2, .head_size = 8, .query_position = 6, .blocks = {9, 16}, .documents = {0, 11}};
  const AttentionCase c(shape, DType::kF32);
  c.run_forward();
  c.run_backward();
  const auto objective = [&] {
    const AttentionCase fresh(shape, DType::kF32);
    fill_values(fresh.q, values_of(c.q));
    for (std::size_t b = 0; b < c.k.size(); ++b) {
      fill_values(fresh.k[b], values_of(c.k[b]));
      fill_values(fresh.v[b], values_of(c.v[b]));
    }
    fresh.run_forward();
    return dot(values_of(fresh.o), values_of(fresh.d_o));
  };
  const auto check_gradient = [&](const Tensor& x, const Tensor& gradient) {
    constexpr double kStep = 0x1p-7;
    for (std::int64_t n = 0; n < x.size(); n += 29) {
      const double value = load_element(x, n);
      store_element(x, n, value + kStep);
      const double up = objective();
      store_element(x, n, value - kStep);
      const double down = objective();
      store_element(x, n, value);
      INFO(x.describe() << " element " << n);
      CHECK(std::abs((up - down) / (2 * kStep) - load_element(gradient, n)) < 2e-3);
    }
  };
  check_gradient(c.q, c.dq);
  for (std::size_t b = 0; b < c.k.size(); ++b) {
    check_gradient(c.k[b], c.dk[b]);
    check_gradient(c.v[b], c.dv[b]);
  }
}

TEST_CASE("attention's KV gradients are added to what is there, dq replaces it", "[ops]") {
  const AttentionShape shape{.tokens = 60, .head_size = 40, .query_position = 3};
  const AttentionCase once(shape, DType::kF32);
  once.run_forward();
  once.run_backward();
  const AttentionCase twice(shape, DType::kF32);
  twice.run_forward();
  twice.run_backward();
  twice.run_backward();
  const auto doubled = [](const OwnedTensor& x) {
    std::vector<double> values = values_of(x);
    for (double& value : values) value *= 2;
    return values;
  };
  CHECK(compare(twice.dk[0], doubled(once.dk[0])) == kAgrees);
  CHECK(compare(twice.dv[0], doubled(once.dv[0])) == kAgrees);
  CHECK(twice.dq.bytes() == once.dq.bytes());
}

TEST_CASE("attention does not depend on how KV is cut into blocks", "[ops]") {
  AttentionShape shape{.tokens = 150, .heads = 2, .head_size = 64, .query_position = 150};
  const AttentionCase whole(shape, DType::kF32);
  shape.blocks = {37, 1, 112, 90, 60};
  const AttentionCase cut(shape, DType::kF32);
  for (const AttentionCase* c : {&whole, &cut}) {
    c->run_forward();
    c->run_backward();
  }
  CHECK(compare(cut.o, values_of(whole.o)) == kAgrees);
  CHECK(compare(cut.lse, values_of(whole.lse)) == kAgrees);
  CHECK(compare(cut.dq, values_of(whole.dq), 4.0) == kAgrees);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < cut.dk.size(); ++i) {
    const std::int64_t end = begin + cut.dk[i].view().dim(0);
    CHECK(compare(cut.dk[i], values_of(whole.dk[0].view().rows(begin, end)), 4.0) == kAgrees);
    CHECK(compare(cut.dv[i], values_of(whole.dv[0].view().rows(begin, end)), 4.0) == kAgrees);
    begin = end;
  }
}

TEST_CASE("attention gives the same bits again and for any number of threads", "[ops]") {
  const AttentionShape shape{.tokens = 301,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_size = 64,
                             .query_position = 50,
                             .blocks = {50, 301},
                             .documents = {0, 70, 222}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<unsigned char> first;
    for (const int threads : {1, 1, 2, 3}) {
      const AttentionCase c(shape, dtype);
      c.run_forward(threads);
      c.run_backward(threads);
      if (first.empty()) first = c.bits();
      CHECK(c.bits() == first);
    }
  }
}

TEST_CASE("attention lets NaN through instead of hiding it", "[ops]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionCase c({.tokens = 20, .head_size = 16}, dtype);
    store_element(c.q, 7 * 16 + 3, std::numeric_limits<double>::quiet_NaN());
    c.run_forward();
    const std::vector<double> o = values_of(c.o);
    for (std::size_t n = 0; n < o.size(); ++n) CHECK(std::isnan(o[n]) == (n / 16 == 7));
  }
}

TEST_CASE("attention refuses shapes that do not fit, before it writes", "[ops]") {
  const AttentionCase c({.tokens = 6, .heads = 4, .kv_heads = 2, .head_size = 16, .blocks = {2, 4}},
                        DType::kF32);
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
