#include "slimpipe/train/learning_rate.h"

#include <limits>

#include "slimpipe/train/optimizer.h"

#include "support/catch.h"

namespace slimpipe::train {
namespace {

config::TrainingConfig plan(config::LrSchedule schedule) {
  config::TrainingConfig training;
  training.steps = 100;
  training.warmup_steps = 10;
  training.lr = 1.0;
  training.min_lr_ratio = 0.1;
  training.lr_schedule = schedule;
  return training;
}

}  // namespace

TEST_CASE("warm-up climbs in equal steps to the peak", "[unit]") {
  const auto training = plan(config::LrSchedule::kCosine);
  CHECK(learning_rate(training, 1) == Approx(0.1));
  CHECK(learning_rate(training, 5) == Approx(0.5));
  CHECK(learning_rate(training, 10) == Approx(1.0));
}

TEST_CASE("every schedule ends at its floor, and constant at the peak", "[unit]") {
  CHECK(learning_rate(plan(config::LrSchedule::kConstant), 100) == Approx(1.0));
  CHECK(learning_rate(plan(config::LrSchedule::kLinear), 100) == Approx(0.1));
  CHECK(learning_rate(plan(config::LrSchedule::kCosine), 100) == Approx(0.1));
  CHECK(learning_rate(plan(config::LrSchedule::kWsd), 100) == Approx(0.1));
  CHECK(learning_rate(plan(config::LrSchedule::kCosine), 1000) == Approx(0.1));  // past the end, not below
}

TEST_CASE("half-way values", "[unit]") {
  CHECK(learning_rate(plan(config::LrSchedule::kLinear), 55) == Approx(0.55));
  CHECK(learning_rate(plan(config::LrSchedule::kCosine), 55) == Approx(0.55));
  CHECK(learning_rate(plan(config::LrSchedule::kWsd), 90) == Approx(1.0));  // stable until the last tenth
  CHECK(learning_rate(plan(config::LrSchedule::kWsd), 95) == Approx(0.55));
}

TEST_CASE("a decay that the warm-up leaves no room for begins after it", "[unit]") {
  config::TrainingConfig training = plan(config::LrSchedule::kWsd);
  training.steps = 20;
  training.warmup_steps = 19;
  for (const int decay : {0, 2, 20}) {
    training.decay_steps = decay;
    CHECK(learning_rate(training, 19) == Approx(1.0));
    CHECK(learning_rate(training, 20) == Approx(0.1));
  }
  training.warmup_steps = 18;
  training.decay_steps = 20;
  CHECK(learning_rate(training, 19) == Approx(0.55));
}

TEST_CASE("wsd decays over the steps it is given", "[unit]") {
  config::TrainingConfig training = plan(config::LrSchedule::kWsd);
  training.decay_steps = 40;
  CHECK(learning_rate(training, 60) == Approx(1.0));
  CHECK(learning_rate(training, 61) == Approx(1.0 - 0.9 / 40));
  CHECK(learning_rate(training, 80) == Approx(0.55));
  CHECK(learning_rate(training, 100) == Approx(0.1));
}

TEST_CASE("what is not finite is named: the loss first, then the first gradient of the table", "[unit]") {
  const model::ParameterTable table(
      {.layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .head_size = 4, .ffn = 16, .vocabulary = 11});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> squares(table.entries().size(), 1.0);
  CHECK(what_is_not_finite(2.0, squares, table).empty());
  for (std::size_t i = squares.size(); i-- > 0;) {
    squares[i] = i % 2 == 0 ? nan : infinity;
    CHECK(what_is_not_finite(2.0, squares, table) == "gradient of " + table.entries()[i].name);
  }
  CHECK(what_is_not_finite(nan, squares, table) == "loss");
  CHECK(what_is_not_finite(infinity, squares, table) == "loss");
}

TEST_CASE("the clipping factor brings the norm to the threshold and leaves smaller ones alone", "[unit]") {
  CHECK(clip_factor(4.0, 1.0) * 4.0 == Approx(1.0));
  CHECK(clip_factor(0.5, 1.0) == 1.0);
  CHECK(clip_factor(4.0, 0.0) == 1.0);
  CHECK(norm_of_squares({9.0, 16.0}) == 5.0);
}

}  // namespace slimpipe::train
