// Attention over parts of the keys, joined, against the double-precision definition over all of them.

#include <cmath>
#include <limits>
#include <vector>

#include "slimpipe/core/check.h"

#include "device/cpu/attention.h"
#include "support/attention_case.h"
#include "support/catch.h"
#include "support/compare.h"
#include "support/generate.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Forward over each block of the case alone, and the results joined in their order; the backward likewise
/// over each alone, with the joint lse and delta, and dQ summed.
void check_in_parts(const AttentionShape& shape, DType dtype, int threads = 1) {
  const AttentionCase c(shape, dtype);
  const AttentionForward whole = c.forward_arguments();
  const OwnedTensor o_part(dtype, {shape.tokens, shape.heads, shape.head_size});
  const OwnedTensor lse_part(DType::kF32, {shape.heads, shape.tokens});
  const OwnedTensor workspace(DType::kF32,
                              {cpu::attention_forward_workspace_bytes(c.forward_arguments(), threads) / 4});
  for (std::size_t i = 0; i < whole.blocks.size(); ++i) {
    AttentionForward part = whole;
    part.blocks = whole.blocks.subspan(i, 1);
    part.o = i == 0 ? c.o.view() : o_part.view();
    part.lse = i == 0 ? c.lse.view() : lse_part.view();
    cpu::attention_forward(part, workspace, threads);
    if (i > 0) cpu::merge_attention(o_part, lse_part, c.o, c.lse, threads);
  }
  CHECK((c.o.intact() && c.lse.intact() && o_part.intact() && lse_part.intact()));

  cpu::attention_delta(c.o, c.d_o, c.delta);
  const AttentionBackward all = c.backward_arguments();
  const OwnedTensor scratch(DType::kF32, {cpu::attention_backward_workspace_bytes(all, threads) / 4});
  std::vector<double> dq(static_cast<std::size_t>(shape.tokens * shape.heads * shape.head_size));
  for (std::size_t i = 0; i < all.blocks.size(); ++i) {
    AttentionBackward part = all;
    part.blocks = all.blocks.subspan(i, 1);
    part.kv_gradients = all.kv_gradients.subspan(i, 1);
    cpu::attention_backward(part, scratch, threads);
    const std::vector<double> values = values_of(c.dq);
    for (std::size_t k = 0; k < dq.size(); ++k) dq[k] += values[k];
  }
  fill_values(c.dq, dq);

  const auto expected = reference_attention(c.forward_arguments(), c.d_o);
  // Each join rounds o once more, and with it delta, which dK and dQ feel times the queries and keys.
  const auto roundings = static_cast<double>(whole.blocks.size());
  AttentionShape tolerance = shape;
  tolerance.query_scale += roundings;
  check_close("o", c.o, expected.o, tolerance, dtype);
  check_close("lse", c.lse, expected.lse, tolerance, dtype);
  check_close("dq", c.dq, expected.dq, tolerance, dtype);
  for (std::size_t i = 0; i < c.dk.size(); ++i) {
    check_close("dk", c.dk[i], expected.dk[i], tolerance, dtype, roundings * shape.query_scale);
    check_close("dv", c.dv[i], expected.dv[i], tolerance, dtype);
  }
}

void check_in_parts_of_both_types(const AttentionShape& shape) {
  check_in_parts(shape, DType::kF32);
  check_in_parts(shape, DType::kBF16);
}

/// One row of one head of 8: o and lse after joining `part` to `rest`.
struct Row {
  double o = 0;
  float lse = 0;
};
Row merged(Row part, Row rest) {
  const OwnedTensor o_part = constant(DType::kF32, {1, 1, 8}, part.o);
  const OwnedTensor o = constant(DType::kF32, {1, 1, 8}, rest.o);
  const OwnedTensor lse_part = constant(DType::kF32, {1, 1}, static_cast<double>(part.lse));
  const OwnedTensor lse = constant(DType::kF32, {1, 1}, static_cast<double>(rest.lse));
  cpu::merge_attention(o_part, lse_part, o, lse, 1);
  return {values_of(o)[7], static_cast<float>(values_of(lse)[0])};
}

}  // namespace

TEST_CASE("attention over parts of the keys, joined, is attention over all", "[ops]") {
  check_in_parts_of_both_types({.tokens = 49, .head_size = 24, .query_position = 100, .blocks = {100, 49}});
  check_in_parts_of_both_types({.tokens = 67,
                                .heads = 6,
                                .kv_heads = 2,
                                .head_size = 40,
                                .query_position = 133,
                                .blocks = {1, 131, 68}});
  check_in_parts_of_both_types({.tokens = 128,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_size = 64,
                                .query_position = 512,
                                .blocks = {128, 256, 128, 128}});
  check_in_parts(
      {.tokens = 130, .heads = 4, .kv_heads = 2, .head_size = 16, .query_position = 64, .blocks = {64, 130}},
      DType::kF32, 2);
}

TEST_CASE("parts with large scores are joined exactly", "[ops]") {
  for (const double scale : {20.0, 80.0, 3000.0})
    check_in_parts_of_both_types(
        {.tokens = 33, .head_size = 64, .query_position = 96, .blocks = {64, 32, 33}, .query_scale = scale});
}

TEST_CASE("parts that no query sees add nothing", "[ops]") {
  check_in_parts_of_both_types(
      {.tokens = 20, .head_size = 16, .query_position = 30, .blocks = {40, 60, 128}});
  check_in_parts_of_both_types({.tokens = 30,
                                .head_size = 16,
                                .query_position = 100,
                                .blocks = {90, 20, 20},
                                .documents = {0, 95, 110}});
}

TEST_CASE("rows are joined by their sums of exponentials", "[ops]") {
  const Row equal = merged({.o = 2, .lse = 5}, {.o = 4, .lse = 5});
  CHECK(equal.o == 3);
  CHECK(equal.lse == Approx(5 + std::log(2.0)));
  const Row one_fourth = merged({.o = 8, .lse = 0}, {.o = 0, .lse = static_cast<float>(std::log(3.0))});
  CHECK(one_fourth.o == Approx(2));
  CHECK(one_fourth.lse == Approx(std::log(4.0)));
}

TEST_CASE("rows without keys and of any magnitude are joined without overflow", "[ops]") {
  const Row nothing = merged({.o = 0, .lse = -kInfinity}, {.o = 0, .lse = -kInfinity});
  CHECK(nothing.o == 0);
  CHECK(nothing.lse == -kInfinity);
  const Row kept = merged({.o = 0, .lse = -kInfinity}, {.o = 3, .lse = -7});
  CHECK(kept.o == 3);
  CHECK(kept.lse == -7);
  const Row taken = merged({.o = 3, .lse = -7}, {.o = 0, .lse = -kInfinity});
  CHECK(taken.o == 3);
  CHECK(taken.lse == -7);
  for (const float lse : {-3e38F, -1e6F, 1e6F, 3e38F}) {
    const Row large = merged({.o = 1, .lse = lse}, {.o = 2, .lse = lse});
    CHECK(large.o == 1.5);
    CHECK(large.lse == Approx(lse));
  }
  const Row far = merged({.o = 1, .lse = -3e38F}, {.o = 2, .lse = 3e38F});
  CHECK(far.o == 2);
  CHECK(far.lse == 3e38F);
}

TEST_CASE("wrong shapes of parts are refused", "[ops]") {
  const OwnedTensor o(DType::kF32, {3, 2, 8});
  const OwnedTensor lse(DType::kF32, {2, 3});
  const OwnedTensor halves(DType::kBF16, {3, 2, 8});
  CHECK_THROWS_WITH(cpu::merge_attention(halves, lse, o, lse, 1),
                    test::contains("merge_attention: o_part is bf16[3, 2, 8], expected fp32[3, 2, 8]"));
  CHECK_THROWS_AS(cpu::merge_attention(o.view().rows(0, 2), lse, o, lse, 1), Error);
  CHECK_THROWS_AS(cpu::merge_attention(o, lse.view().rows(0, 1), o, lse, 1), Error);
}

}  // namespace slimpipe::device
