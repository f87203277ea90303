// The layers and the head as one model, computed by the reference operators: so what is tested is the
// model, whatever a backend does.

#include <algorithm>
#include <cmath>

#include "slimpipe/core/random.h"

#include "support/catch.h"
#include "support/reference_device.h"
#include "unit/model/small_model.h"

namespace slimpipe::test {
namespace {

using device::Scope;
using model::Recompute;

struct Variant {
  const char* name;
  config::ModelConfig model;
  std::vector<std::int64_t> document_starts;
};

std::vector<Variant> variants() {
  config::ModelConfig tied = odd_model(4, 2);
  tied.tied_embeddings = true;
  config::ModelConfig yarn = odd_model(2, 2);
  yarn.rope = {.kind = config::RopeKind::kYarn, .theta = 50, .factor = 4, .original_context = 64};
  return {{"as many KV heads as heads", odd_model(3, 3), {}},
          {"grouped KV heads, documents", odd_model(4, 2), {0, 3, 7}},
          {"one KV head", odd_model(3, 1), {}},
          {"tied embeddings", tied, {}},
          {"scaled rope", yarn, {}}};
}

/// Loss after element i of `parameter` moved by step · direction[i]; the parameter is restored.
double moved_loss(SmallModel& model, const Sample& sample, const model::StoredParameter& parameter,
                  const std::vector<double>& direction, double step) {
  auto* values = parameter.weight.as<float>();
  const std::vector<float> saved(values, values + parameter.weight.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(saved[i]) + step * direction[i]);
  }
  const double loss = model.evaluate(sample);
  std::copy(saved.begin(), saved.end(), values);
  return loss;
}

/// Slope of the loss along `direction`, a unit vector: central differences of fourth order, so that the
/// step can be wide enough to drown fp32's rounding.
double measured_slope(SmallModel& model, const Sample& sample, const model::StoredParameter& parameter,
                      const std::vector<double>& direction) {
  const double step = 4e-3;
  const auto difference = [&](double h) {
    return moved_loss(model, sample, parameter, direction, h) -
           moved_loss(model, sample, parameter, direction, -h);
  };
  return (8 * difference(step) - difference(2 * step)) / (12 * step);
}

std::vector<double> random_unit_vector(std::size_t size, std::uint32_t detail) {
  std::vector<double> direction(size);
  double squares = 0;
  for (std::size_t i = 0; i < size; ++i) {
    direction[i] = random_normal(5, {RandomStream::Use::kTest, detail}, i);
    squares += direction[i] * direction[i];
  }
  for (double& x : direction) x /= std::sqrt(squares);
  return direction;
}

/// max |a - b| / max |b|
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return difference / largest;
}

std::int64_t live(device::Device& device, Scope scope) {
  return device.arena().stats().live[static_cast<std::size_t>(scope)];
}

TEST_CASE("gradients of every parameter agree with finite differences of the loss", "[unit]") {
  const Variant variant = GENERATE(from_range(variants()));
  INFO(variant.name);
  ReferenceDevice device;
  SmallModel model(device, variant.model, DType::kF32);
  Sample sample = random_sample(9, variant.model.vocabulary);
  sample.document_starts = variant.document_starts;
  model.train(sample, 3);
  const Gradients gradients = model.gradients();

  for (const model::StoredParameter& parameter : model.store.parameters()) {
    const std::string& name = model.table.entries()[parameter.index].name;
    INFO(name);
    const std::vector<float>& gradient = gradients.at(name);
    const auto largest = std::max_element(gradient.begin(), gradient.end(),
                                          [](float a, float b) { return std::abs(a) < std::abs(b); });
    CHECK(std::abs(*largest) > 1e-3F);  // or the test has no power

    // Its largest element alone, and a random direction through all of them.
    std::vector<double> direction(gradient.size());
    direction[static_cast<std::size_t>(largest - gradient.begin())] = 1;
    CHECK(measured_slope(model, sample, parameter, direction) ==
          Approx(static_cast<double>(*largest)).epsilon(2e-3).margin(1e-4));

    direction = random_unit_vector(gradient.size(), static_cast<std::uint32_t>(parameter.index));
    double slope = 0;
    for (std::size_t i = 0; i < direction.size(); ++i)
      slope += direction[i] * static_cast<double>(gradient[i]);
    CHECK(measured_slope(model, sample, parameter, direction) == Approx(slope).epsilon(2e-3).margin(1e-4));
  }
}

TEST_CASE("any number of slices gives the unsliced loss and gradients", "[unit]") {
  const Variant variant = GENERATE(from_range(variants()));
  INFO(variant.name);
  ReferenceDevice device;
  SmallModel model(device, variant.model, DType::kF32);
  Sample sample = random_sample(12, variant.model.vocabulary);
  sample.document_starts = variant.document_starts;
  const double loss = model.train(sample, 1);
  const Gradients gradients = model.gradients();
  for (const int slices : {2, 3, 12}) {
    INFO("slices " << slices);
    CHECK(model.train(sample, slices) == Approx(loss).epsilon(1e-6));
    for (const auto& [name, gradient] : model.gradients()) {
      INFO(name);
      CHECK(relative_difference(gradient, gradients.at(name)) < 1e-5);
    }
  }
}

TEST_CASE("evaluation gives training's loss bit by bit and touches no gradient", "[unit]") {
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  ReferenceDevice device;
  const config::ModelConfig config = odd_model(4, 2);
  const Sample sample = random_sample(12, config.vocabulary);
  SmallModel trained(device, config, compute);
  SmallModel evaluated(device, config, compute, false);
  const double loss = trained.train(sample, 2);
  CHECK(evaluated.evaluate(sample, 2) == loss);
  const Gradients before = trained.gradients();
  CHECK(trained.evaluate(sample, 2) == loss);
  CHECK(trained.gradients() == before);
}

TEST_CASE("gradients add up over samples", "[unit]") {
  ReferenceDevice device;
  const config::ModelConfig config = odd_model(4, 2);
  const Sample sample = random_sample(6, config.vocabulary);
  SmallModel model(device, config, DType::kF32);
  model.train(sample, 2);
  Gradients twice = model.gradients();
  for (auto& [name, gradient] : twice) {
    for (float& value : gradient) value *= 2;
  }
  model.accumulate(sample, 2);
  for (const auto& [name, gradient] : model.gradients()) {
    INFO(name);
    CHECK(relative_difference(gradient, twice.at(name)) < 1e-6);
  }
}

TEST_CASE("bf16 stays close to fp32", "[unit]") {
  ReferenceDevice device;
  const config::ModelConfig config = odd_model(4, 2);
  const Sample sample = random_sample(12, config.vocabulary);
  SmallModel exact(device, config, DType::kF32);
  SmallModel rounded(device, config, DType::kBF16);
  const double loss = exact.train(sample, 2);
  CHECK(rounded.train(sample, 2) == Approx(loss).epsilon(0.02));
  const Gradients expected = exact.gradients();
  for (const auto& [name, gradient] : rounded.gradients()) {
    INFO(name);
    CHECK(relative_difference(gradient, expected.at(name)) < 0.06);
  }
}

/// Bytes of the fields of LayerSaved for one token.
std::int64_t saved_bytes_per_token(const config::ModelConfig& m, DType compute, Recompute recompute) {
  const std::int64_t q = m.heads * m.head_size;
  const std::int64_t kv = m.kv_heads * m.head_size;
  std::int64_t elements = 2 * m.hidden + 2 * q + 2 * kv + 2 * m.ffn;          // x, x2; q, o; k, v; gate_up
  if (recompute == Recompute::kNone) elements += 2 * m.hidden + m.ffn;        // n1, n2; act
  return elements * size_of(compute) + (2 + m.heads) * size_of(DType::kF32);  // rstd1, rstd2; lse
}

TEST_CASE("saved activations are what the layer declares, and a step leaves nothing behind", "[unit]") {
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const Recompute recompute = GENERATE(Recompute::kNone, Recompute::kSelective);
  const int slices = GENERATE(1, 4);
  ReferenceDevice device;
  const config::ModelConfig config = odd_model(4, 2);
  SmallModel model(device, config, compute, true, 7, recompute);
  model.train(random_sample(64, config.vocabulary), slices);
  const std::int64_t declared = 64 * config.layers * saved_bytes_per_token(config, compute, recompute);
  const std::int64_t tensors = 13;  // each may be rounded up to the arena's alignment
  CHECK(model.saved_bytes >= declared);
  CHECK(model.saved_bytes < declared + config.layers * slices * tensors * device::Arena::kAlignment);
  for (const Scope scope :
       {Scope::kSavedActivations, Scope::kWorkspace, Scope::kKvGradients, Scope::kInput, Scope::kTransfer}) {
    INFO(device::name_of(scope));
    CHECK(live(device, scope) == 0);
    CHECK(device.arena().live(scope).empty());
  }
}

TEST_CASE("a layer's backward frees the gradients that only attention needs", "[unit]") {
  ReferenceDevice device;
  const config::ModelConfig config = odd_model(4, 2);
  SmallModel model(device, config, DType::kF32);
  const Sample sample = random_sample(64, config.vocabulary);
  device.arena().reset_peaks();
  model.train(sample, 1);
  const std::int64_t peak = device.arena().stats().peak[static_cast<std::size_t>(Scope::kWorkspace)];
  const std::int64_t hidden = config.hidden;
  const std::int64_t q = config.heads * config.head_size;
  const std::int64_t kv = config.kv_heads * config.head_size;
  // Of the caller: d_out and d_x of each layer so far. Of the layer, at most: d_gate_up, d_x2, and then
  // dq beside d_qkv. Everything alive at once would add d_o, the gated product and a norm's gradient.
  const std::int64_t tokens = 64;
  const std::int64_t caller = 3 * hidden;
  const std::int64_t layer = 2 * config.ffn + hidden + q + (q + 2 * kv);
  CHECK(peak <= tokens * size_of(DType::kF32) * (caller + layer));
}

}  // namespace
}  // namespace slimpipe::test
