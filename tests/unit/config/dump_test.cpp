#include <fmt/core.h>
#include <fstream>
#include <set>
#include <sstream>

#include "slimpipe/config/load.h"
#include "slimpipe/core/random.h"

#include "config/field.h"
#include "support/catch.h"

namespace slimpipe::config {
namespace {

using test::contains;

void check_same(const RunConfig& a, const RunConfig& b) {
  for (const Field& field : field_table()) {
    CAPTURE(field.key);
    CHECK(field.get(a) == field.get(b));
  }
}

/// A draw from 0 .. below - 1; `counter` moves on.
std::uint64_t draw(std::uint64_t& counter, std::uint64_t below) {
  return random_u64(11, RandomStream{RandomStream::Use::kTest, 5}, counter++) % below;
}

/// Some value of a field, small where it is a number.
std::string some_text(const Field& field, std::uint64_t& counter) {
  if (!field.available.empty()) return field.available[draw(counter, field.available.size())];
  const Domain& domain = field.domain;
  if (std::holds_alternative<Flags>(domain)) return draw(counter, 2) == 0 ? "true" : "false";
  if (const auto* choices = std::get_if<Choices>(&domain))
    return choices->names[draw(counter, choices->names.size())];
  if (std::holds_alternative<Numbers>(domain))
    return fmt::format("{}", static_cast<double>(draw(counter, 999)) / (draw(counter, 2) == 0 ? 1e3 : 7));
  if (std::holds_alternative<Text>(domain)) {
    static const std::vector<std::string> texts = {"",
                                                   "a/b-c_d.tok",
                                                   "with space",
                                                   "\"quoted\" \\ 'too'",
                                                   "null",
                                                   "~",
                                                   "true",
                                                   "12",
                                                   "# no",
                                                   "a: b",
                                                   "- a",
                                                   "ß/漢/😀",
                                                   "-",
                                                   ".",
                                                   "[x]",
                                                   "{y}",
                                                   " lead",
                                                   "trail ",
                                                   "a #b",
                                                   "1f1b",
                                                   "*a",
                                                   "&a",
                                                   "!t",
                                                   "%x",
                                                   "\xC2\x85",
                                                   "\xE2\x80\xA8",
                                                   "\xEF\xBB\xBF"};
    return texts[draw(counter, texts.size())];
  }
  return std::to_string(draw(counter, draw(counter, 2) == 0 ? 3 : 300));
}

/// Whether the configuration stays valid with this value.
bool accepts(const std::vector<std::string>& overrides) {
  try {
    (void)load_text("", "random", overrides);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

TEST_CASE("a dump loads as the same configuration, for every preset", "[unit]") {
  for (const std::string& name : preset_names()) {
    const Loaded loaded = load_text("", "x", {"model.preset=" + name, "data.sequence_length=4096"});
    for (const bool with_origins : {false, true})
      check_same(load_text(dump(loaded, with_origins), "dump.yaml", {}).config, loaded.config);
  }
}

TEST_CASE("a dump loads as the same configuration, for random values of every field", "[unit]") {
  std::uint64_t counter = 0;
  std::set<std::string> changed;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> overrides = {"model.preset=tiny", "data.sequence_length=720720"};
    for (const Field& field : field_table()) {
      overrides.push_back(std::string(field.key) + "=" + some_text(field, counter));
      if (accepts(overrides))
        changed.emplace(field.key);
      else
        overrides.pop_back();
    }
    const Loaded loaded = load_text("", "random", overrides);
    const Loaded again = load_text(dump(loaded, true), "dump.yaml", {});
    check_same(again.config, loaded.config);
    CHECK(dump(again, false) == dump(loaded, false));
  }
  for (const Field& field : field_table()) {
    CAPTURE(field.key);
    CHECK(changed.count(std::string(field.key)) == 1);
  }
}

TEST_CASE("a dump says where each value came from", "[unit]") {
  const Loaded loaded = load_text("model: {preset: tiny}\ndata:\n  sequence_length: 8\n", "run.yaml",
                                  {"training.lr=1e-3", "memory.limit=1GiB"});
  const std::string text = dump(loaded, true);
  CHECK_THAT(text, contains("  layers: 4                                   # preset tiny\n"));
  CHECK_THAT(text, contains("  sequence_length: 8                          # run.yaml:3\n"));
  CHECK_THAT(text, contains("  lr: 0.001                                   # --set\n"));
  CHECK_THAT(text, contains("  limit: 1GiB                                 # --set\n"));
  CHECK_THAT(text, contains("  clip: 1                                     # default\n"));
  CHECK_THAT(text, contains("  rope:\n    kind: plain "));
  CHECK_THAT(text, contains("  # steps: not set "));
  CHECK(dump(loaded, false).find("preset tiny") == std::string::npos);
}

TEST_CASE("a model is identified by all its settings but its name and where its weights came from",
          "[unit]") {
  RunConfig config;
  const std::map<std::string, std::string> before = identity_of(config.model);
  for (const Field& field : field_table()) {
    CAPTURE(field.key);
    const bool identifies =
        field.key.starts_with("model.") && field.key != "model.preset" && field.key != "model.init_std";
    CHECK(before.count(std::string(field.key)) == (identifies ? 1 : 0));
  }
  config.model.rope.theta = 12345.678;
  CHECK(identity_of(config.model).at("model.rope.theta") == "12345.678");
}

TEST_CASE("a file name with control characters cannot break out of a comment", "[unit]") {
  const Loaded loaded = load_text("model: {preset: tiny}\ndata: {sequence_length: 8}\n", "a\nb.yaml", {});
  check_same(load_text(dump(loaded, true), "dump.yaml", {}).config, loaded.config);
}

TEST_CASE("the reference names every key and preset, and configs/REFERENCE.md is the present one", "[unit]") {
  const std::string text = reference();
  for (const Field& field : field_table()) CHECK_THAT(text, contains("| `" + std::string(field.key) + "` |"));
  for (const std::string& name : preset_names()) CHECK_THAT(text, contains("| `" + name + "` |"));
  std::ifstream stream(SLIMPIPE_SOURCE_DIR "/configs/REFERENCE.md", std::ios::binary);
  std::ostringstream file;
  file << stream.rdbuf();
  INFO("out of date; regenerate it: build/slimpipe config reference > configs/REFERENCE.md");
  CHECK((file.str() == text));
}

}  // namespace slimpipe::config
