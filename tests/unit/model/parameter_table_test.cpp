#include "slimpipe/model/parameters.h"

#include "support/catch.h"

namespace slimpipe::model {
namespace {

config::ModelConfig small(bool tied = false) {
  return {.layers = 3,
          .hidden = 10,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 6,
          .ffn = 14,
          .vocabulary = 33,
          .tied_embeddings = tied};
}

config::ModelConfig llama_7b() {
  return {.layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 32,
          .head_size = 128,
          .ffn = 11008,
          .vocabulary = 32000};
}

using Indices = std::vector<std::size_t>;

TEST_CASE("the table lists embedding, layers, final norm and head under Hugging Face's names", "[unit]") {
  const ParameterTable table(small());
  const std::vector<std::string> expected_start = {"model.embed_tokens.weight",
                                                   "model.layers.0.input_layernorm.weight",
                                                   "model.layers.0.self_attn.q_proj.weight",
                                                   "model.layers.0.self_attn.k_proj.weight",
                                                   "model.layers.0.self_attn.v_proj.weight",
                                                   "model.layers.0.self_attn.o_proj.weight",
                                                   "model.layers.0.post_attention_layernorm.weight",
                                                   "model.layers.0.mlp.gate_proj.weight",
                                                   "model.layers.0.mlp.up_proj.weight",
                                                   "model.layers.0.mlp.down_proj.weight",
                                                   "model.layers.1.input_layernorm.weight"};
  REQUIRE(table.entries().size() == 1 + 3 * 9 + 2);
  for (std::size_t i = 0; i < expected_start.size(); ++i) CHECK(table.entries()[i].name == expected_start[i]);
  CHECK(table.entries()[28].name == "model.norm.weight");
  CHECK(table.entries()[29].name == "lm_head.weight");
  for (std::size_t i = 0; i < table.entries().size(); ++i)
    CHECK(table.index_of(table.entries()[i].name) == i);
  CHECK_THROWS_AS(table.index_of("model.layers.3.mlp.up_proj.weight"), Error);
}

TEST_CASE("shapes follow the model's sizes and only matrices decay", "[unit]") {
  const ParameterTable table(small());
  const auto shape = [&](const char* name) { return table.entries()[table.index_of(name)].shape; };
  using Shape = std::vector<std::int64_t>;
  CHECK(shape("model.embed_tokens.weight") == Shape{33, 10});
  CHECK(shape("model.layers.2.self_attn.q_proj.weight") == Shape{24, 10});
  CHECK(shape("model.layers.2.self_attn.k_proj.weight") == Shape{12, 10});
  CHECK(shape("model.layers.2.self_attn.v_proj.weight") == Shape{12, 10});
  CHECK(shape("model.layers.2.self_attn.o_proj.weight") == Shape{10, 24});
  CHECK(shape("model.layers.2.mlp.gate_proj.weight") == Shape{14, 10});
  CHECK(shape("model.layers.2.mlp.down_proj.weight") == Shape{10, 14});
  CHECK(shape("model.norm.weight") == Shape{10});
  for (const ParameterSpec& spec : table.entries()) {
    INFO(spec.name);
    CHECK(spec.decay == (spec.shape.size() == 2));
    CHECK((spec.init == Init::kOnes) == (spec.shape.size() == 1));
  }
}

TEST_CASE("matrices that write to the residual stream start smaller by the square root of twice the depth",
          "[unit]") {
  const ParameterTable table(small());
  for (const ParameterSpec& spec : table.entries()) {
    if (spec.shape.size() == 1) continue;
    const bool residual =
        spec.name.find("o_proj") != std::string::npos || spec.name.find("down_proj") != std::string::npos;
    INFO(spec.name);
    CHECK(spec.init_std == Approx(residual ? 0.02 / std::sqrt(6.0) : 0.02));
  }
}

TEST_CASE("the total is the known parameter count of a published model", "[unit]") {
  CHECK(ParameterTable(llama_7b()).total_size() == 6738415616);
  CHECK(multiplying_parameters(llama_7b()) == 6738415616 - 32000LL * 4096);
  config::ModelConfig tied = llama_7b();
  tied.tied_embeddings = true;
  CHECK(ParameterTable(tied).total_size() == 6738415616 - 32000LL * 4096);
  CHECK(multiplying_parameters(tied) == multiplying_parameters(llama_7b()));
}

TEST_CASE("FLOPs per token give the published utilisation of Llama-7B", "[unit]") {
  const double flops = flops_per_token(llama_7b(), 12288, false);
  CHECK(flops * 3803 / 312e12 == Approx(0.601).margin(0.0005));
  CHECK(flops * 8273 / 989e12 == Approx(0.412).margin(0.0005));
  CHECK(flops_per_token(llama_7b(), 12288, true) - flops == Approx(6.0 * 32 * 4096 * 12288));
}

TEST_CASE("stages of a pipeline share out the table without gap or repetition", "[unit]") {
  const ParameterTable table(small());
  Indices all = table.stage_entries(0, 1, true, false);
  CHECK(all == Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Indices middle = table.stage_entries(1, 1, false, false);
  CHECK(middle.front() == 10);
  CHECK(middle.size() == 9);
  const Indices last = table.stage_entries(2, 1, false, true);
  CHECK(last.back() == 29);
  CHECK(last.size() == 11);
  all.insert(all.end(), middle.begin(), middle.end());
  all.insert(all.end(), last.begin(), last.end());
  CHECK(all == table.stage_entries(0, 3, true, true));
  CHECK(table.stage_entries(3, 0, false, true) == Indices{28, 29});
}

TEST_CASE("with tied embeddings first and last stage hold the embedding and nobody a head", "[unit]") {
  const ParameterTable table(small(true));
  CHECK_THROWS_AS(table.index_of("lm_head.weight"), Error);
  CHECK(table.stage_entries(0, 1, true, false).front() == 0);
  CHECK(table.stage_entries(1, 1, false, false).front() == 10);
  const Indices last = table.stage_entries(2, 1, false, true);
  CHECK(last.front() == 0);
  CHECK(last.back() == 28);
  CHECK(table.stage_entries(0, 3, true, true).size() == table.entries().size());
}

TEST_CASE("sizes that no model can have are refused", "[unit]") {
  config::ModelConfig model = small();
  model.kv_heads = 3;
  CHECK_THROWS_AS(ParameterTable(model), Error);
  model = small();
  model.head_size = 5;
  CHECK_THROWS_AS(ParameterTable(model), Error);
  model = small();
  model.vocabulary = 0;
  CHECK_THROWS_AS(ParameterTable(model), Error);
}

}  // namespace
}  // namespace slimpipe::model
