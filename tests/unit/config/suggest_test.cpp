#include "config/suggest.h"

#include "support/catch.h"

namespace slimpipe::config {

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps", "[unit]") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("lenght", "length") == 1);
  CHECK(edit_distance("slices", "slices") == 0);
}

TEST_CASE("the nearest key is suggested, also from the wrong section", "[unit]") {
  const auto suggested = [](std::string_view unknown) { return suggestion_for_key(unknown); };
  CHECK(suggested("schedule.slice") == "; did you mean schedule.slices?");
  CHECK(suggested("parallel.pipline") == "; did you mean parallel.pipeline?");
  CHECK(suggested("schedule.pipeline") == "; did you mean parallel.pipeline?");
  CHECK(suggested("data.seq_lenght") == "; did you mean data.sequence_length?");
  CHECK(suggested("model.theta") == "; did you mean model.rope.theta?");
  CHECK(suggested("steps") == "; did you mean training.steps?");
  CHECK(suggested("modle") == "; did you mean model?");
  CHECK(suggested("shedule.slices") == "; did you mean schedule.slices?");
  CHECK(suggested("shedule.slice") == "; did you mean schedule.slices?");
  CHECK(suggested("every") == "; did you mean checkpoint.every or log.every?");
  CHECK(suggested("chekpoint.every") == "; did you mean checkpoint.every?");
  CHECK(suggested("training.learning_rate") == "; did you mean training.lr?");
  CHECK(suggested("model.window").empty());
  CHECK(suggested("").empty());
  CHECK(suggested(std::string(10'000, 'a')).empty());
}

}  // namespace slimpipe::config
