// What every operator does with tensors of the wrong shape or type, and with no tokens at all.
#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/compare.h"
#include "support/cpu_device.h"
#include "support/generate.h"

namespace slimpipe::device {

using namespace slimpipe::testing;

namespace {

/// Tensors of the shapes that the operators expect, for `tokens` tokens.
struct Tensors {
  static constexpr std::int64_t kHidden = 24;
  static constexpr std::int64_t kVocabulary = 11;
  static constexpr std::int64_t kHalf = 4;

  explicit Tensors(std::int64_t n)
      : hidden(normal(DType::kF32, {n, kHidden}, 1)),
        other(normal(DType::kF32, {n, kHidden}, 2)),
        output(constant(DType::kF32, {n, kHidden}, 7)),
        gate_up(normal(DType::kF32, {n, 2 * kHidden}, 3)),
        weight(normal(DType::kF32, {kHidden}, 4)),
        d_weight(constant(DType::kF32, {kHidden}, 7)),
        rstd(constant(DType::kF32, {n}, 7)),
        tokens(integers({n}, 5, 0, kVocabulary)),
        table(normal(DType::kF32, {kVocabulary, kHidden}, 6)),
        logits(normal(DType::kF32, {n, kVocabulary}, 7)),
        loss(constant(DType::kF64, {1}, 7)),
        cos(constant(DType::kF32, {n, kHalf}, 1)),
        sin(constant(DType::kF32, {n, kHalf}, 0)),
        frequency(constant(DType::kF64, {kHalf}, 1)),
        head(constant(DType::kF32, {n, 1, 2 * kHalf}, 7)) {}

  OwnedTensor hidden, other, output, gate_up, weight, d_weight, rstd, tokens, table, logits, loss, cos, sin,
      frequency, head;
};

struct Call {
  std::string name;
  std::function<void(CpuDevice&, const Tensors&, const Tensors&)> run;  ///< `bad` stands in for one argument
};

const std::vector<Call>& wrong_calls() {
  using T = const Tensors&;
  static const std::vector<Call> calls = {
      {"gemm",
       [](CpuDevice& d, T t, T bad) {
         d.operators().gemm(d.stream(), {t.hidden, t.table, bad.logits, false, true}, Tensor());
       }},
      {"gemm",
       [](CpuDevice& d, T t, T) {
         d.operators().gemm(d.stream(), {t.hidden, t.table, t.logits}, Tensor());
       }},
      {"rms_norm_forward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().rms_norm_forward(d.stream(), t.hidden, t.weight, 0, bad.output, t.rstd);
       }},
      {"rms_norm_forward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().rms_norm_forward(d.stream(), t.hidden, t.weight, 0, t.output, bad.rstd);
       }},
      {"rms_norm_forward",
       [](CpuDevice& d, T t, T) {
         d.operators().rms_norm_forward(d.stream(), t.hidden, t.rstd, 0, t.output, t.rstd);
       }},
      {"add_rms_norm_forward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().add_rms_norm_forward(d.stream(), t.hidden, bad.other, t.weight, 0, t.output, t.output,
                                            t.rstd);
       }},
      {"rms_norm_backward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().rms_norm_backward(d.stream(), t.other, t.hidden, t.weight, t.rstd, bad.other, t.output,
                                         t.d_weight, d.workspace(4096));
       }},
      {"rms_norm_backward",
       [](CpuDevice& d, T t, T) {
         d.operators().rms_norm_backward(d.stream(), t.other, t.hidden, t.weight, t.rstd, Tensor(), t.output,
                                         t.d_weight, Tensor());
       }},
      {"rope_table",
       [](CpuDevice& d, T t, T bad) {
         d.operators().rope_table(d.stream(), t.frequency, 0, 1, t.output, bad.sin);
       }},
      {"rope_forward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().rope_forward(d.stream(), t.hidden, bad.cos, t.sin, t.head, t.head, t.head);
       }},
      {"rope_backward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().rope_backward(d.stream(), t.head, bad.head, t.head, t.cos, t.sin, t.output);
       }},
      {"swiglu_forward",
       [](CpuDevice& d, T t, T bad) { d.operators().swiglu_forward(d.stream(), bad.gate_up, t.output); }},
      {"swiglu_forward",
       [](CpuDevice& d, T t, T) { d.operators().swiglu_forward(d.stream(), t.hidden, t.output); }},
      {"swiglu_backward",
       [](CpuDevice& d, T t, T) {
         d.operators().swiglu_backward(d.stream(), t.hidden, t.gate_up, t.output);
       }},
      {"embedding_forward",
       [](CpuDevice& d, T t, T bad) {
         d.operators().embedding_forward(d.stream(), bad.tokens, t.table, t.output);
       }},
      {"embedding_forward",
       [](CpuDevice& d, T t, T) { d.operators().embedding_forward(d.stream(), t.rstd, t.table, t.output); }},
      {"embedding_backward",
       [](CpuDevice& d, T t, T) {
         d.operators().embedding_backward(d.stream(), t.tokens, t.hidden, t.output.view().columns(0, 3));
       }},
      {"cross_entropy",
       [](CpuDevice& d, T t, T bad) {
         d.operators().cross_entropy(d.stream(), t.logits, bad.tokens, 1, t.loss, Tensor());
       }},
      {"cross_entropy",
       [](CpuDevice& d, T t, T) {
         d.operators().cross_entropy(d.stream(), t.logits, t.tokens, 1, t.loss, t.output);
       }},
      {"adamw",
       [](CpuDevice& d, T t, T bad) {
         d.operators().adamw(
             d.stream(), {.parameter = t.rstd, .gradient = bad.rstd, .moment1 = t.rstd, .moment2 = t.rstd});
       }},
      {"adamw",
       [](CpuDevice& d, T t, T) {
         d.operators().adamw(d.stream(), {.parameter = t.rstd,
                                          .remainder = t.rstd,
                                          .gradient = t.rstd,
                                          .moment1 = t.rstd,
                                          .moment2 = t.rstd});
       }},
      {"sum_of_squares",
       [](CpuDevice& d, T t, T) { d.operators().sum_of_squares(d.stream(), t.hidden, t.rstd); }},
      {"add", [](CpuDevice& d, T t, T bad) { d.operators().add(d.stream(), t.hidden, bad.other, t.output); }},
      {"copy", [](CpuDevice& d, T t, T bad) { d.operators().copy(d.stream(), bad.hidden, t.output); }},
      {"copy", [](CpuDevice& d, T t, T) { d.operators().copy(d.stream(), t.tokens, t.rstd); }},
  };
  return calls;
}

}  // namespace

TEST_CASE("a wrong shape or type is refused by the operator's name, and nothing is written", "[ops]") {
  CpuDevice device;
  for (const Call& call : wrong_calls()) {
    const Tensors tensors(5);
    const Tensors bad(6);
    INFO(call.name);
    try {
      call.run(device, tensors, bad);
      FAIL_CHECK("was accepted");
    } catch (const Error& e) {
      INFO(e.what());
      CHECK(std::string(e.what()).find(call.name + ": ") != std::string::npos);
    }
    for (const OwnedTensor* untouched :
         {&tensors.output, &tensors.d_weight, &tensors.rstd, &tensors.loss, &tensors.head})
      for (const double value : values_of(*untouched)) REQUIRE(value == 7.0);
  }
}

TEST_CASE("no tokens at all is legal for every operator", "[ops]") {
  CpuDevice d;
  const Tensors t(0);
  Operators& operators = d.operators();
  CHECK_NOTHROW(d.gemm({t.hidden, t.table, t.logits, false, true}));
  CHECK_NOTHROW(operators.rms_norm_forward(d.stream(), t.hidden, t.weight, 0, t.output, t.rstd));
  CHECK_NOTHROW(
      operators.add_rms_norm_forward(d.stream(), t.hidden, t.other, t.weight, 0, t.output, t.output, t.rstd));
  CHECK_NOTHROW(operators.rms_norm_backward(d.stream(), t.other, t.hidden, t.weight, t.rstd, Tensor(),
                                            t.output, t.d_weight, Tensor()));
  CHECK(values_of(t.d_weight) == std::vector<double>(Tensors::kHidden, 7.0));
  CHECK_NOTHROW(operators.rope_table(d.stream(), t.frequency, 0, 1, t.cos, t.sin));
  CHECK_NOTHROW(operators.rope_forward(d.stream(), t.hidden, t.cos, t.sin, t.head, t.head, t.head));
  CHECK_NOTHROW(operators.rope_backward(d.stream(), t.head, t.head, t.head, t.cos, t.sin, t.output));
  CHECK_NOTHROW(operators.swiglu_forward(d.stream(), t.gate_up, t.output));
  CHECK_NOTHROW(operators.swiglu_backward(d.stream(), t.hidden, t.gate_up, t.gate_up));
  CHECK_NOTHROW(operators.embedding_forward(d.stream(), t.tokens, t.table, t.output));
  CHECK_NOTHROW(operators.embedding_backward(d.stream(), t.tokens, t.hidden, t.table));
  CHECK_NOTHROW(operators.cross_entropy(d.stream(), t.logits, t.tokens, 1, t.loss, t.logits));
  CHECK(load_element(t.loss, 0) == 7.0);
  CHECK_NOTHROW(operators.adamw(
      d.stream(), {.parameter = t.rstd, .gradient = t.rstd, .moment1 = t.rstd, .moment2 = t.rstd}));
}

}  // namespace slimpipe::device
