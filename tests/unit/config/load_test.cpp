#include "slimpipe/config/load.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "slimpipe/core/check.h"

#include "config/field.h"
#include "config/presets.h"
#include "support/catch.h"

namespace slimpipe::config {
namespace {

using test::contains;
using Overrides = std::vector<std::string>;

const std::string tiny_run = "model:\n  preset: tiny\ndata:\n  sequence_length: 64\n";

std::string origin_of(const Loaded& loaded, std::string_view key) {
  return loaded.origins.at(static_cast<std::size_t>(find_field(key))).second;
}

std::string error_of(std::string_view yaml, const Overrides& overrides = {}) {
  try {
    (void)load_text(yaml, "run.yaml", overrides);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("overrides win over the file, the file over the preset, the preset over the defaults", "[unit]") {
  const std::string yaml = tiny_run + "training:\n  lr: 1e-3\n  clip: 0.5\nparallel: {pipeline: 2}\n";
  const Loaded loaded = load_text("# a comment\n" + yaml, "run.yaml",
                                  {"training.lr=1e-4", "model.ffn=512", "training.lr=2e-4"});
  const RunConfig& c = loaded.config;
  CHECK(c.training.lr == 2e-4);
  CHECK(origin_of(loaded, "training.lr") == "--set");
  CHECK(c.model.ffn == 512);
  CHECK(origin_of(loaded, "model.ffn") == "--set");
  CHECK(c.training.clip == 0.5);
  CHECK(origin_of(loaded, "training.clip") == "run.yaml:8");
  CHECK(c.parallel.pipeline == 2);
  CHECK(origin_of(loaded, "parallel.pipeline") == "run.yaml:9");
  CHECK(c.model.layers == 4);
  CHECK(origin_of(loaded, "model.layers") == "preset tiny");
  CHECK(origin_of(loaded, "model.preset") == "run.yaml:3");
  CHECK(c.training.beta1 == RunConfig{}.training.beta1);
  CHECK(origin_of(loaded, "training.beta1") == "default");
}

TEST_CASE("a preset from --set replaces the file's, and fields of the file override it wherever they stand",
          "[unit]") {
  const Loaded loaded = load_text("model:\n  layers: 6\n  preset: tiny\ndata: {sequence_length: 8}\n",
                                  "run.yaml", {"model.preset=llama-3-8b"});
  CHECK(loaded.config.model.layers == 6);
  CHECK(loaded.config.model.hidden == 4096);
  CHECK(loaded.config.model.rope.theta == 500000);
  CHECK(origin_of(loaded, "model.rope.theta") == "preset llama-3-8b");
  CHECK(loaded.config.model.preset == "llama-3-8b");
}

TEST_CASE("sizes left at 0 are derived and say so", "[unit]") {
  const Loaded loaded = load_text("", "run.yaml",
                                  {"model.layers=1", "model.hidden=96", "model.heads=3", "model.ffn=7",
                                   "model.vocabulary=5", "data.sequence_length=1"});
  CHECK(loaded.config.model.kv_heads == 3);
  CHECK(loaded.config.model.head_size == 32);
  CHECK(origin_of(loaded, "model.kv_heads") == "derived: model.heads");
  CHECK(origin_of(loaded, "model.head_size") == "derived: model.hidden / model.heads");
}

TEST_CASE("a head size of its own frees hidden from being a multiple of heads", "[unit]") {
  const Loaded loaded =
      load_text(tiny_run, "run.yaml", {"model.heads=6", "model.head_size=40", "model.kv_heads=3"});
  CHECK(loaded.config.model.head_size == 40);
  CHECK(loaded.config.model.hidden == 256);
}

TEST_CASE("what only training needs is no error of the configuration", "[unit]") {
  const std::vector<std::string> lacking = training_problems(load_text(tiny_run, "run.yaml", {}).config);
  REQUIRE(lacking.size() == 2);
  CHECK_THAT(lacking[0], contains("data.train") && contains("slimpipe data prepare"));
  CHECK_THAT(lacking[1], contains("training.steps"));
  const Overrides rest = {"data.train=a.tok", "training.steps=1"};
  CHECK(training_problems(load_text(tiny_run, "run.yaml", rest).config).empty());
}

TEST_CASE("an empty file, a file of comments and empty sections are configurations", "[unit]") {
  const Overrides rest = {"model.preset=tiny", "data.sequence_length=8"};
  for (const std::string yaml :
       {"", "# nothing yet\n", "---\n", "training:\nlog:\n", "\xEF\xBB\xBFlog: {every: 2}\n"})
    CHECK(load_text(yaml, "run.yaml", rest).config.model.layers == 4);
}

TEST_CASE("a bad value is reported once, without the combinations it would break", "[unit]") {
  const std::string text = error_of(tiny_run + "parallel: {pipeline: x}\nschedule: {slices: 0}\n");
  CHECK_THAT(text, contains("the configuration has 2 problems:\n"));
  CHECK_THAT(text, contains("run.yaml:5: parallel.pipeline: expected an integer"));
  CHECK_THAT(text, contains("run.yaml:6: schedule.slices: expected an integer"));
}

TEST_CASE("a bad preset is reported without the sizes it would have set", "[unit]") {
  const std::string text = error_of("model: {preset: tinny}\ndata: {sequence_length: 8}\n");
  CHECK(text.find('\n') == std::string::npos);
  CHECK_THAT(text, contains("run.yaml:1: model.preset: expected one of tiny, small,"));
}

TEST_CASE("what is not YAML, or more of YAML than a configuration uses, is refused with its line", "[unit]") {
  using std::string_literals::operator""s;
  std::string deep;
  for (int i = 0; i < 9; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"log:\n  every: 1\n  every: 2\n", "run.yaml:3: log.every: duplicate key, first given in line 2"},
      {"log: {every: 1}\ndata:\nlog:\n", "run.yaml:3: log: duplicate key, first given in line 1"},
      {"a: [{b: 1, b: 2}]\n", "run.yaml:1: a.b: duplicate key"},
      {"log: &l\n  every: 1\n", "run.yaml:1: anchors (&name) are not supported"},
      {"log:\n  every: &n 1\n", "run.yaml:2: anchors (&name) are not supported"},
      {"&k log: {}\n", "anchors (&name) are not supported"},
      {"a: &a [1]\nb: [*a, *a]\n", "run.yaml:2: aliases (*name) are not supported"},
      {"log: *l\n", "run.yaml:1: "},
      {"log:\n  <<: {every: 1}\n", "run.yaml:2: log.<<: merge keys are not supported"},
      {"log:\n  every: !!int 1\n", "run.yaml:2: tags (!name) are not supported"},
      {"log: !mine {every: 1}\n", "run.yaml:1: tags (!name) are not supported"},
      {deep, "run.yaml:9: nested deeper than 8 levels"},
      {"log: {every: 1}\n---\nlog: {every: 2}\n", "a second document starts here"},
      {"- log\n", "run.yaml:1: expected a mapping of sections such as `model:`, found a list"},
      {"log\n", "run.yaml:1: expected a mapping of sections such as `model:`, found a single value"},
      {"\"\"\n", "run.yaml:1: expected a mapping of sections such as `model:`, found a single value"},
      {"? [a, b]\n: 1\n", "run.yaml:1: expected a word as key"},
      {"~: 1\n", "run.yaml:1: a key is missing"},
      {": 1\n", "run.yaml:1: "},
      {"log:\n\tevery: 1\n", "run.yaml:2: the line is indented with a tab; YAML takes only spaces"},
      {"log: {every: 1\n", "not valid YAML"},
      {"log: \"every\n", "run.yaml:1: log"},
      {"log: |\n  every\n", "run.yaml:1: log: this is a section"},
      {"data: {train: |\n  a\n  b\n}\n", "run.yaml:"},
      {"data:\n  train: \"a\\nb\"\n", "run.yaml:2: data.train: expected one line of text"},
      {"data:\n  train: \"a\\0b\"\n",
       "run.yaml:2: data.train: expected one line of text, found the text \"a\\x00b\""},
      {"log:\n  every: \xff\n", "run.yaml:2: expected UTF-8 text, found a byte that is not UTF-8 (0xff)"},
      {"log:\n\n  every: 1\0\n"s, "run.yaml:3: expected UTF-8 text, found a control character (0x00)"},
      {"\xff\xfel\0o\0g\0"s, "run.yaml:1: expected UTF-8 text"},
      {"log: \x1b[31m\n", "run.yaml:1: expected UTF-8 text, found a control character (0x1b)"},
      {std::string((1 << 20) + 1, '#'), "run.yaml: 1048577 bytes; a configuration has at most 1048576"},
      {"%TAG ! tag:x:\n--- !y\nlog: {}\n", "run.yaml:"},
      {"log.every: 1\n",
       "run.yaml:1: log.every: keys with dots are for --set; write `log:` and inside it `every:`"},
  };
  for (const auto& [yaml, expected] : cases) {
    CAPTURE(yaml.substr(0, 100));
    CHECK_THAT(error_of(yaml, {"model.preset=tiny", "data.sequence_length=8"}), contains(expected));
  }
}

TEST_CASE("hostile texts of the largest size end soon, with an error", "[unit]") {
  constexpr std::size_t kSize = 1 << 20;
  const auto repeated = [](std::string_view part) {
    std::string text;
    while (text.size() + part.size() <= kSize) text += part;
    return text;
  };
  std::string many_keys;
  for (int i = 0; many_keys.size() < kSize / 2; ++i) many_keys += "key" + std::to_string(i) + ": 1\n";
  for (const std::string& yaml :
       {repeated("["), repeated("{a: "), repeated("- "), repeated("? "), repeated("a: "), repeated("*a "),
        repeated("&a "), repeated("!"), repeated("\""), repeated("a"), repeated("[]"), repeated("---\n"),
        repeated("\n"), repeated(": "), many_keys, "a: " + repeated("[").substr(0, kSize - 3), repeated("'"),
        repeated("|\n")}) {
    CAPTURE(yaml.substr(0, 20));
    const std::string text = error_of(yaml);
    CHECK(text != "no error");
    CHECK(text.size() < 100'000);
  }
}

TEST_CASE("no cut or flipped byte of a good file does more than give an error", "[unit]") {
  const std::string yaml = "model: {preset: \"tiny\"}\ndata:\n  sequence_length: 64 # c\n  train: 'a'\n";
  const Overrides rest = {"model.layers=4"};
  const auto survives = [&](const std::string& text) {
    try {
      (void)load_text(text, "run.yaml", rest);
    } catch (const InputError&) {
    }
    return true;
  };
  for (std::size_t i = 0; i < yaml.size(); ++i) {
    CHECK(survives(yaml.substr(0, i)));
    for (const char c : std::string("\0\t\n !&*-:?[]{}|>%@`'\"#,~\xff", 25)) {
      std::string changed = yaml;
      changed[i] = c;
      CHECK(survives(changed));
      CHECK(survives(yaml.substr(0, i) + c + yaml.substr(i)));
    }
  }
}

TEST_CASE("files that cannot be read are named", "[unit]") {
  CHECK_THROWS_WITH(load("no/such.yaml", {}),
                    contains("cannot open no/such.yaml: No such file or directory; name a YAML file"));
  CHECK_THROWS_WITH(load(SLIMPIPE_SOURCE_DIR, {}),
                    contains("it is a folder, expected a regular file; name a YAML file"));
  CHECK_THROWS_WITH(load("", {}), contains("configuration: data.sequence_length: required"));
}

TEST_CASE("every configuration in configs/ loads and can be trained with", "[unit]") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLIMPIPE_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    CAPTURE(entry.path().string());
    CHECK(training_problems(load(entry.path(), {}).config).empty());
  }
  CHECK(files >= 3);
}

TEST_CASE("presets have the sizes their names say", "[unit]") {
  const std::vector<std::pair<std::string, double>> billions = {
      {"llama-100m", 0.1},   {"llama-7b", 6.74},   {"llama-13b", 13.02},  {"llama-70b", 68.98},
      {"llama-149b", 149.0}, {"llama-3-8b", 8.03}, {"llama-3-70b", 70.55}};
  for (const auto& [name, expected] : billions) {
    CAPTURE(name);
    const Preset* preset = find_preset(name);
    REQUIRE(preset != nullptr);
    const double found = static_cast<double>(parameter_count(preset->model)) / 1e9;
    CHECK(found == Approx(expected).epsilon(name == "llama-100m" ? 0.1 : 1e-3));
  }
  CHECK(find_preset("llama") == nullptr);
}

TEST_CASE("every field takes the ends of its range", "[unit]") {
  for (const Field& field : field_table()) {
    CAPTURE(field.key);
    const auto* range = std::get_if<Integers>(&field.domain);
    if (range == nullptr) continue;
    for (const std::int64_t end : {range->low, range->high}) {
      RunConfig config;
      field.set(config, end);
      CHECK(field.get(config) == Value(end));
    }
  }
}

}  // namespace slimpipe::config
