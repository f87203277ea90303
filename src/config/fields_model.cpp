// Rows of the field table: model and its rotary embedding.

#include "slimpipe/config/load.h"

#include "config/field_rows.h"

namespace slimpipe::config {
namespace {

// Bounds that keep every product of sizes far from the end of int64.
constexpr std::int64_t kMaxLayers = 100'000;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxVocabulary = (std::int64_t{1} << 31) - 1;  // token ids are 32-bit
constexpr std::int64_t kMaxContext = std::int64_t{1} << 40;
constexpr double kMaxRopeRatio = 1e6;       // of contexts, or of a context to a wavelength
constexpr std::int64_t kMaxHeadSize = 256;  // what the attention operators hold in registers

std::vector<std::string> preset_choices() {
  std::vector<std::string> names = preset_names();
  names.insert(names.begin(), "");
  return names;
}

std::vector<Field> rope_rows() {
  return {
      enumeration(SLIMPIPE_FIELD(model.rope.kind), {"plain", "linear", "ntk", "yarn", "llama3"},
                  "how the rotary embedding is stretched beyond the context of the original model"),
      number(SLIMPIPE_FIELD(model.rope.theta), {.low = 1, .high = 1e15, .low_open = true},
             "base of the rotary frequencies"),
      number(SLIMPIPE_FIELD(model.rope.factor), {.low = 1, .high = kMaxRopeRatio},
             "context extension factor; for linear, ntk, yarn, llama3"),
      integer(SLIMPIPE_FIELD(model.rope.original_context), {1, kMaxContext},
              "context of the original model in tokens; for yarn, llama3"),
      number(SLIMPIPE_FIELD(model.rope.beta_fast), {.low = 1 / kMaxRopeRatio, .high = kMaxRopeRatio},
             "rotations over the original context above which a frequency is left alone; for yarn"),
      number(SLIMPIPE_FIELD(model.rope.beta_slow), {.low = 1 / kMaxRopeRatio, .high = kMaxRopeRatio},
             "rotations over the original context below which a frequency is divided by factor; for yarn"),
      number(SLIMPIPE_FIELD(model.rope.low_frequency_factor),
             {.low = 1 / kMaxRopeRatio, .high = kMaxRopeRatio},
             "rotations over the original context below which a frequency is divided by factor; for llama3"),
      number(SLIMPIPE_FIELD(model.rope.high_frequency_factor),
             {.low = 1 / kMaxRopeRatio, .high = kMaxRopeRatio},
             "rotations over the original context above which a frequency is left alone; for llama3"),
  };
}

}  // namespace

std::vector<Field> model_rows() {
  std::vector<Field> rows = {
      choice(SLIMPIPE_FIELD(model.preset), preset_choices(),
             "sizes of a known model: sets every other field of this section, which explicit fields "
             "override; empty: none"),
      integer(SLIMPIPE_FIELD(model.layers), {1, kMaxLayers}, "transformer layers").required(),
      integer(SLIMPIPE_FIELD(model.hidden), {1, kMaxWidth}, "width of the hidden state").required(),
      integer(SLIMPIPE_FIELD(model.heads), {1, kMaxWidth}, "query heads").required(),
      integer(SLIMPIPE_FIELD(model.kv_heads), {0, kMaxWidth},
              "key and value heads, a divisor of heads; 0: as many as heads"),
      integer(SLIMPIPE_FIELD(model.head_size), {0, kMaxHeadSize},
              "width of a head, a multiple of 8; 0: hidden / heads"),
      integer(SLIMPIPE_FIELD(model.ffn), {1, kMaxWidth}, "inner width of the SwiGLU feed-forward part")
          .required(),
      integer(SLIMPIPE_FIELD(model.vocabulary), {1, kMaxVocabulary},
              "token ids the model knows; the byte tokenizer needs 257")
          .required(),
      flag(SLIMPIPE_FIELD(model.tied_embeddings), "input embedding and output layer share one weight"),
      number(SLIMPIPE_FIELD(model.norm_epsilon), {.low = 1e-30, .high = 1},
             "added to the mean square in RMSNorm"),
      number(SLIMPIPE_FIELD(model.init_std), {.low = 1e-9, .high = 10},
             "standard deviation of the initial weights"),
  };
  for (Field& field : rope_rows()) rows.push_back(std::move(field));
  return rows;
}

}  // namespace slimpipe::config
