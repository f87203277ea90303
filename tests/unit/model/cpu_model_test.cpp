// The same model on the CPU backend and on the reference operators.

#include <algorithm>
#include <cmath>

#include "support/catch.h"
#include "support/reference_device.h"
#include "unit/model/small_model.h"

namespace slimpipe::test {
namespace {

/// ‖a - b‖ / ‖b‖
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / norm);
}

/// Sizes that leave tails in every vector width and tile.
config::ModelConfig wider_model() {
  return {.layers = 2,
          .hidden = 70,
          .heads = 6,
          .kv_heads = 2,
          .head_size = 24,
          .ffn = 101,
          .vocabulary = 131,
          .init_std = 0.1};
}

/// bf16 rounds to within 2^-9; sixteen roundings lie on the way of a gradient through this model, some of
/// them (probabilities and their gradients) inside the attention kernel, where the reference keeps doubles.
/// Twice that, because a norm's weight gradient sums terms that cancel, and processors differ in which
/// intermediate values they round. A wrong term shows in fp32, at 1e-5.
constexpr double kBf16Bound = 2 * 16 * 0x1p-9;

TEST_CASE("the CPU backend computes the reference's loss and gradients", "[unit]") {
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const config::ModelConfig config = GENERATE(odd_model(4, 2), odd_model(3, 1), wider_model());
  const int slices = GENERATE(1, 3);
  INFO(name_of(compute) << ", hidden " << config.hidden << ", " << slices << " slices");
  Sample sample = random_sample(39, config.vocabulary);
  sample.document_starts = {0, 5, 20};

  ReferenceDevice reference_device;
  SmallModel reference(reference_device, config, compute);
  const double loss = reference.train(sample, slices);
  const Gradients expected = reference.gradients();

  const auto backend = device::make_cpu_backend();
  const auto cpu = backend->make_device({.threads = 2});
  {
    SmallModel model(*cpu, config, compute);
    CHECK(model.train(sample, slices) == Approx(loss).epsilon(compute == DType::kF32 ? 1e-6 : 2e-3));
    for (const auto& [name, gradient] : model.gradients()) {
      INFO(name);
      CHECK(relative_error(gradient, expected.at(name)) < (compute == DType::kF32 ? 1e-5 : kBf16Bound));
    }
  }
  CHECK(cpu->arena().stats().total_live == 0);
}

TEST_CASE("the CPU backend gives the same bits every time", "[unit]") {
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const config::ModelConfig config = wider_model();
  const Sample sample = random_sample(48, config.vocabulary);
  const auto backend = device::make_cpu_backend();
  const auto one = backend->make_device({.threads = 1});
  const auto two = backend->make_device({.threads = 2});
  SmallModel first(*one, config, compute);
  SmallModel second(*two, config, compute);
  CHECK(first.train(sample, 2) == second.train(sample, 2));
  CHECK(first.gradients() == second.gradients());
}

}  // namespace
}  // namespace slimpipe::test
