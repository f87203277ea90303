#include <cmath>
#include <map>
#include <string>

#include "slimpipe/model/parameters.h"

#include "support/catch.h"
#include "support/reference_device.h"
#include "unit/model/small_model.h"

namespace slimpipe::model {
namespace {

using device::Scope;
using test::ReferenceDevice;

std::int64_t live(ReferenceDevice& device, Scope scope) {
  return device.arena().stats().live[static_cast<std::size_t>(scope)];
}

std::vector<float> values_of(const Tensor& t) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < t.size(); ++i) values.push_back(static_cast<float>(test::load(t, i)));
  return values;
}

std::vector<float> master_of(ParameterStore& store, const StoredParameter& parameter) {
  std::vector<float> values(static_cast<std::size_t>(parameter.weight.size()));
  store.read_master(parameter, 0, values);
  return values;
}

/// Stage i of a pipeline with one layer a stage.
std::vector<std::size_t> stage(const ParameterTable& table, const config::ModelConfig& model, int i) {
  return table.stage_entries(i, 1, i == 0, i == model.layers - 1);
}

TEST_CASE("every layout of the store draws the same initial values", "[unit]") {
  config::ModelConfig model = test::odd_model(4, 2);
  model.tied_embeddings = GENERATE(false, true);
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const ParameterTable table(model);
  ReferenceDevice device;
  ParameterStore whole(device, table, model, compute, table.stage_entries(0, 2, true, true), true);
  whole.initialise(11);
  std::size_t compared = 0;
  for (int i = 0; i < model.layers; ++i) {
    ParameterStore part(device, table, model, compute, stage(table, model, i), i == 0);
    part.initialise(11);
    for (const StoredParameter& p : part.parameters()) {
      const StoredParameter* other = whole.find(p.index);
      REQUIRE(other != nullptr);
      INFO(table.entries()[p.index].name);
      CHECK(master_of(part, p) == master_of(whole, *other));
      CHECK(values_of(p.weight) == values_of(other->weight));
      ++compared;
    }
  }
  CHECK(compared == table.entries().size() + (model.tied_embeddings ? 1 : 0));
}

TEST_CASE("initial values have the deviation of their entry, and another seed draws others", "[unit]") {
  const config::ModelConfig model{
      .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 4, .head_size = 16, .ffn = 96, .vocabulary = 50};
  const ParameterTable table(model);
  ReferenceDevice device;
  ParameterStore store(device, table, model, DType::kF32, table.stage_entries(0, 2, true, true), false);
  store.initialise(1);
  std::map<std::string, std::vector<float>> first;
  for (const StoredParameter& p : store.parameters()) {
    const ParameterSpec& spec = table.entries()[p.index];
    INFO(spec.name);
    const std::vector<float> values = values_of(p.weight);
    first[spec.name] = values;
    double mean = 0;
    double squares = 0;
    for (const float v : values) {
      mean += static_cast<double>(v) / static_cast<double>(values.size());
      squares += static_cast<double>(v) * static_cast<double>(v) / static_cast<double>(values.size());
    }
    if (spec.init == Init::kOnes) {
      CHECK(mean == 1.0);
      CHECK(squares == 1.0);
    } else {
      CHECK(std::abs(mean) < 0.1 * spec.init_std);
      CHECK(std::sqrt(squares) == Approx(spec.init_std).epsilon(0.08));
    }
  }
  CHECK(first["model.layers.0.self_attn.q_proj.weight"] != first["model.layers.1.self_attn.q_proj.weight"]);
  store.initialise(2);
  CHECK(values_of(store.embedding_weight()) != first["model.embed_tokens.weight"]);
}

TEST_CASE("values take 4 bytes a parameter in fp32, and 2 + 2 in bf16", "[unit]") {
  const config::ModelConfig model = test::odd_model(4, 2);
  const ParameterTable table(model);
  const std::int64_t size = table.total_size();
  ReferenceDevice device;
  {
    ParameterStore store(device, table, model, DType::kF32, table.stage_entries(0, 2, true, true), true);
    for (const StoredParameter& p : store.parameters()) CHECK(p.remainder.data() == nullptr);
    CHECK(live(device, Scope::kMasterWeights) == 0);
    CHECK(live(device, Scope::kWeights) >= 4 * size);
    CHECK(live(device, Scope::kWeights) < 4 * size + 128 * std::ssize(table.entries()));
    CHECK(live(device, Scope::kGradients) == 0);
    CHECK(live(device, Scope::kOptimizer) == 2 * live(device, Scope::kWeights));
  }
  {
    ParameterStore store(device, table, model, DType::kBF16, table.stage_entries(0, 2, true, true), false);
    for (const StoredParameter& p : store.parameters()) {
      CHECK(p.weight.dtype() == DType::kBF16);
      CHECK(p.remainder.describe() == fmt::format("int16[{}]", p.weight.size()));
      CHECK(p.gradient.data() == nullptr);
    }
    CHECK(live(device, Scope::kWeights) >= 2 * size);
    CHECK(live(device, Scope::kWeights) < 2 * size + 64 * std::ssize(table.entries()));
    CHECK(live(device, Scope::kMasterWeights) == live(device, Scope::kWeights));
    CHECK(live(device, Scope::kGradients) == 0);
    CHECK(live(device, Scope::kOptimizer) == 0);
    CHECK_THROWS_WITH(store.layer_gradients(0), test::contains("only evaluates"));
  }
  CHECK(device.arena().stats().total_live == 0);
}

TEST_CASE("masters are written and read exactly, in parts, and bf16 weights are their nearest", "[unit]") {
  const config::ModelConfig model = test::odd_model(4, 2);
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const ParameterTable table(model);
  ReferenceDevice device;
  ParameterStore store(device, table, model, compute, table.stage_entries(0, 2, true, true), true);
  store.initialise(5);
  const StoredParameter& p = *store.find(table.index_of("model.layers.1.mlp.gate_proj.weight"));
  std::vector<float> expected = master_of(store, p);
  const std::vector<float> part = {1.00390625F + 0x1p-12F, -3.0F};  // the first just above a middle
  store.write_master(p, 3, part);
  std::copy(part.begin(), part.end(), expected.begin() + 3);
  CHECK(master_of(store, p) == expected);
  std::vector<float> read(2);
  store.read_master(p, 3, read);
  CHECK(read == part);
  CHECK(test::load(p.weight, 3) == (compute == DType::kBF16 ? 1.0078125F : part[0]));
  CHECK(values_of(p.weight) == values_of(store.layer_weights(1).gate_up.rows(0, model.ffn)));
}

TEST_CASE("fused groups are one matrix whose rows are their members' and start on 64 bytes", "[unit]") {
  const config::ModelConfig model = test::odd_model(4, 2);
  const DType compute = GENERATE(DType::kF32, DType::kBF16);
  const ParameterTable table(model);
  ReferenceDevice device;
  ParameterStore store(device, table, model, compute, table.stage_entries(0, 2, true, true), true);
  store.initialise(3);
  const auto member = [&](const char* name) -> const StoredParameter& {
    return *store.find(table.index_of(fmt::format("model.layers.1.{}.weight", name)));
  };
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.data() == b.data() && a.describe() == b.describe();
  };
  const LayerTensors weights = store.layer_weights(1);
  const LayerTensors gradients = store.layer_gradients(1);
  const std::int64_t q = model.heads * model.head_size;
  const std::int64_t kv = model.kv_heads * model.head_size;
  CHECK(weights.qkv.dim(0) == q + 2 * kv);
  CHECK(same(weights.qkv.rows(0, q), member("self_attn.q_proj").weight));
  CHECK(same(weights.qkv.rows(q, q + kv), member("self_attn.k_proj").weight));
  CHECK(same(weights.qkv.rows(q + kv, q + 2 * kv), member("self_attn.v_proj").weight));
  CHECK(same(gradients.qkv.rows(q, q + kv), member("self_attn.k_proj").gradient));
  CHECK(weights.gate_up.dim(0) == 22);
  CHECK(same(weights.gate_up.rows(11, 22), member("mlp.up_proj").weight));
  CHECK(same(gradients.gate_up.rows(0, 11), member("mlp.gate_proj").gradient));
  CHECK(gradients.qkv.dtype() == DType::kF32);
  for (const Tensor& t : {weights.qkv, weights.gate_up, weights.down, weights.attention_output,
                          weights.ffn_norm, gradients.qkv, gradients.gate_up, gradients.down}) {
    CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
  }
}

TEST_CASE("a store names what it does not hold, and refuses a torn fused group", "[unit]") {
  const config::ModelConfig model = test::odd_model(4, 2);
  const ParameterTable table(model);
  ReferenceDevice device;
  const ParameterStore first(device, table, model, DType::kF32, stage(table, model, 0), true);
  CHECK(first.find(table.index_of("model.norm.weight")) == nullptr);
  CHECK_THROWS_WITH(first.layer_weights(1), test::contains("model.layers.1.input_layernorm.weight"));
  CHECK_THROWS_WITH(first.head_weight(), test::contains("lm_head.weight"));
  const std::vector<std::size_t> torn = {table.index_of("model.layers.0.self_attn.k_proj.weight")};
  CHECK_THROWS_AS(ParameterStore(device, table, model, DType::kF32, torn, true), Error);
  CHECK_THROWS_AS(ParameterStore(device, table, model, DType::kF32, {1, 0}, true), Error);
}

TEST_CASE("a tied head shares the embedding's weight and adds its gradient up apart", "[unit]") {
  config::ModelConfig model = test::odd_model(4, 2);
  model.tied_embeddings = true;
  const ParameterTable table(model);
  ReferenceDevice device;
  ParameterStore whole(device, table, model, DType::kF32, table.stage_entries(0, 2, true, true), true);
  CHECK(whole.head_weight().data() == whole.embedding_weight().data());
  CHECK(whole.head_gradient().data() != whole.embedding_gradient().data());
  CHECK(whole.head_gradient().describe() == "fp32[23, 15]");
  CHECK(whole.head_gradient().data() == whole.head_gradient().data());
  ParameterStore last(device, table, model, DType::kF32, stage(table, model, 1), true);
  CHECK(last.head_gradient().data() != nullptr);
  ParameterStore first(device, table, model, DType::kF32, stage(table, model, 0), true);
  CHECK_THROWS_WITH(first.head_gradient(), test::contains("model.norm.weight"));
}

TEST_CASE("gradients are there, zeroed, part by part, from the first use to their release", "[unit]") {
  config::ModelConfig model = test::odd_model(4, 2);
  model.tied_embeddings = GENERATE(false, true);
  const ParameterTable table(model);
  ReferenceDevice device;
  ParameterStore store(device, table, model, DType::kF32, table.stage_entries(0, 2, true, true), true);
  const std::int64_t before = device.arena().stats().total_live;
  for (int step = 0; step < 2; ++step) {
    // The values of one step must not be met in the next.
    const auto used = [&](const Tensor& gradient) {
      const float* values = gradient.as<float>();
      CHECK(std::all_of(values, values + gradient.size(), [](float value) { return value == 0; }));
      std::fill_n(gradient.as<float>(), gradient.size(), 1.0F);
    };
    used(store.head_gradient());
    const std::int64_t head = live(device, Scope::kGradients);
    CHECK(head >= 4 * model.vocabulary * model.hidden);
    CHECK(head < 4 * model.vocabulary * model.hidden + 64);
    used(store.final_norm_gradient());
    const LayerTensors layer = store.layer_gradients(1);
    for (const Tensor& t : {layer.attention_norm, layer.qkv, layer.attention_output, layer.ffn_norm,
                            layer.gate_up, layer.down}) {
      used(t);
    }
    CHECK(store.layer_gradients(1).qkv.as<float>()[0] == 1);  // asking again leaves them
    CHECK(store.find(table.index_of("model.layers.0.mlp.down_proj.weight"))->gradient.data() == nullptr);
    (void)store.layer_gradients(0);
    used(store.embedding_gradient());
    for (const StoredParameter& p : store.parameters()) CHECK(p.gradient.size() == p.weight.size());
    store.release_gradients();
    for (const StoredParameter& p : store.parameters()) CHECK(p.gradient.data() == nullptr);
    CHECK(device.arena().stats().total_live == before);
  }
}

}  // namespace
}  // namespace slimpipe::model
