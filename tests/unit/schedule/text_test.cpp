#include "slimpipe/core/check.h"

#include "support/catch.h"
#include "unit/schedule/random_specs.h"

using namespace slimpipe;
using namespace slimpipe::schedule;

namespace {

const std::string good_text =
    "slimpipe p=1 v=1 m=1 n=2 slope=2 training\n"
    "stages 0\n"
    "0: F0.0.0 F0.0.1 B0.0.1 B0.0.0\n";

/// The error of parsing good_text with `from` replaced.
std::string error_of(const std::string& from, const std::string& to) {
  auto text = good_text;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  try {
    (void)parse_text(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an action's text has kind, chunk, microbatch and slice, and arg where there is one", "[unit]") {
  REQUIRE(to_string(Action{ActionKind::kForward, 0, 1, 3}) == "F0.1.3");
  REQUIRE(to_string(Action{ActionKind::kBackward, 1, 0, 12}) == "B1.0.12");
  REQUIRE(to_string(Action{ActionKind::kBackwardInput, 0, 0, 0, 7}) == "I0.0.0@7");
  REQUIRE(to_string(Action{ActionKind::kBackwardWeight}) == "W0.0.0");
}

TEST_CASE("text of random schedules parses to the same schedule", "[unit]") {
  Dice dice(11);
  for (int round = 0; round < 60; ++round) {
    const auto spec = random_spec(dice, {.max_p = 9, .max_v = 4, .max_m = 5, .max_n = 20});
    REQUIRE(parse_text(format_text(build(spec))) == build(spec));
    REQUIRE(parse_text(format_text(build_forward_only(spec))) == build_forward_only(spec));
  }
}

TEST_CASE("split backwards, args, other placements and loose spacing survive the text", "[unit]") {
  auto schedule = build({.pipeline = 2});
  schedule.stage_of = {{1}, {0}};
  schedule.devices[0] = {{ActionKind::kBackwardInput, 3, 4, 5}, {ActionKind::kBackwardWeight, 0, 0, 0, 0}};
  schedule.devices[1] = {};
  REQUIRE(parse_text(format_text(schedule)) == schedule);
  REQUIRE(parse_text("\r\n\n  slimpipe\tp=2 v=1 m=1 n=1 slope=2   training \r\n\nstages 1 0\r\n"
                     "0:   I3.4.5\tW0.0.0@0\r\n1:") == schedule);
}

TEST_CASE("a wrong word is named with its line, its number and what belongs there", "[unit]") {
  CHECK(
      error_of("slimpipe", "pipedream") ==
      "schedule text line 1, word 1: expected a kind (gpipe, 1f1b, terapipe, slimpipe), found \"pipedream\"");
  CHECK(error_of("p=1", "p=x") == "schedule text line 1, word 2: expected p=NUMBER, found \"p=x\"");
  CHECK(error_of("v=1", "m=1") == "schedule text line 1, word 3: expected v=NUMBER, found \"m=1\"");
  CHECK(error_of("training", "resting") ==
        "schedule text line 1, word 7: expected \"training\" or \"forward\", found \"resting\"");
  CHECK(error_of("training", "training now") ==
        "schedule text line 1, word 8: expected the end of the line, found \"now\"");
  CHECK(error_of("v=1", "v=0") == "schedule text line 1: virtual_stages 0: expected at least 1");
  CHECK(error_of("stages 0", "stages") ==
        "schedule text line 2, word 2: expected 1 stage(s) of device 0, found the end of the line");
  CHECK(error_of("0:", "1:") == "schedule text line 3, word 1: expected \"0:\", found \"1:\"");
  CHECK(
      error_of("F0.0.1", "F0.x.1") ==
      "schedule text line 3, word 3: expected an action: F, B, I, W or H, then chunk.microbatch.slice, as in "
      "\"F0.1.3\", found \"F0.x.1\"");
  CHECK(
      error_of("B0.0.0\n", "B0.0.0\n1: F0.0.0\n") ==
      "schedule text line 4, word 1: expected the end or \"exchange\": all devices are there, found \"1:\"");
}

TEST_CASE("text that ends early says what should follow", "[unit]") {
  CHECK_THROWS_WITH(
      parse_text(""),
      "schedule text ends after line 0: expected a line like \"slimpipe p=4 v=1 m=2 n=4 slope=2 "
      "training\"");
  CHECK_THROWS_WITH(parse_text(good_text.substr(0, good_text.find("0:"))),
                    "schedule text ends after line 2: expected the actions of device 0 after \"0:\"");
}

TEST_CASE("malformed actions and numbers are refused", "[unit]") {
  for (const std::string word :
       {"F", "F0", "F0.0", "F0.0.", "F0.0.0.0", "F.0.0", "F-1.0.0", "F0.0.0@", "F0.0.0@-1", "F0.0.0@1@2",
        "X0.0.0", "f0.0.1", "F0.0.99999999999", "F0,0,1", "F+1.0.0", "F 0.0.1"})
    CHECK(error_of("F0.0.1", word).find("schedule text line 3, word 3") == 0);
  for (const std::string word : {"stages 0,", "stages 0,1", "stages ,", "stages -1", "stages 0 1", "stage 0"})
    CHECK(error_of("stages 0", word).find("schedule text line 2, word") == 0);
  for (const std::string word :
       {"p=", "p=0", "p=-1", "p=1.0", "p=99999999999", "p", "=1", "p==1", "p=2147483647"})
    CHECK(error_of("p=1", word).find("schedule text line") == 0);
}

TEST_CASE("hostile words are shown shortened and printable", "[unit]") {
  REQUIRE(error_of("F0.0.1", std::string("\x1b[31m\0", 6)).find("found \"?[31m?\"") != std::string::npos);
  REQUIRE(error_of("F0.0.1", std::string(100000, 'x')).size() < 250);
}

TEST_CASE("every truncation and every changed byte of a text is parsed or refused, never more", "[unit]") {
  const auto text = format_text(build({.pipeline = 2, .microbatches = 2, .slices = 2}));
  const auto try_parse = [](const std::string& candidate) {
    try {
      (void)parse_text(candidate);
    } catch (const InputError&) {
      return false;
    }
    return true;
  };
  for (std::size_t length = 0; length + 6 < text.size(); ++length) {
    // A cut between two words of the last line leaves a shorter list: validate's to judge.
    const bool inside_last_line = length > text.rfind("1:") + 1;
    REQUIRE((!try_parse(text.substr(0, length)) || inside_last_line));
  }
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const char byte : {'\0', '\xff', '9', '.', '\n', ' '}) {
      auto changed = text;
      changed[at] = byte;
      (void)try_parse(changed);
    }
}
