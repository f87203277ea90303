// What a step does to the parameters: normalisation of the loss, clipping, weight decay.

#include <cmath>

#include "runtime/train/session_state.h"
#include "support/catch.h"
#include "support/reference_elementwise.h"

namespace slimpipe::test {
namespace {

using schedule::Kind;

constexpr MatrixCase kTwoDevices{Kind::kSlimPipe, 2, 4, 2, 2, false};

testing::Values values_of(const std::vector<float>& floats) {
  return {floats.begin(), floats.end()};
}

bool is_matrix(const train::Session& session, const std::string& name) {
  return session.table().entries()[session.table().index_of(name)].shape.size() == 2;
}

/// The largest difference of `got` from `expected`, against the largest value of `expected`.
double relative_difference(const std::vector<float>& got, const testing::Values& expected) {
  double difference = 0;
  double scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return difference / scale;
}

/// Euclidean norm over the table, copies counted once.
template <typename Part>
double norm_over_table(const SessionState& state, Part part) {
  double sum = 0;
  for (const auto& [key, one] : without_devices(state)) {
    for (const float value : part(one)) sum += double{value} * value;
  }
  return std::sqrt(sum);
}

train::Batch without_targets(train::Batch batch) {
  for (data::Sample& sample : batch.samples) std::ranges::fill(sample.targets, -1);
  batch.valid_tokens = 0;
  return batch;
}

}  // namespace

TEST_CASE("the gradient that AdamW uses has the clipping threshold as its norm", "[runtime]") {
  for (const bool tied : {false, true}) {
    MatrixCase c = kTwoDevices;
    c.tied = tied;
    config::RunConfig config = matrix_config(c);
    config.training.clip = 0.01;
    train::Session session(config, {});
    session.initialise();
    const train::StepResult step =
        session.train_step(matrix_batch(2, 0), {.learning_rate = 1e-3, .update = 1});
    const SessionState state = state_of(session);
    const double downloaded = norm_over_table(
        state, [](const ParameterState& p) -> const auto& { return p.gradient; });
    CHECK(step.gradient_norm == Approx(downloaded).epsilon(1e-6));
    REQUIRE(step.gradient_norm > 10 * config.training.clip);
    // Moments start at zero, so after one update moment1 is (1 - beta1) times the gradient used.
    const double used = norm_over_table(
                            state, [](const ParameterState& p) -> const auto& { return p.moment1; }) /
                        (1 - config.training.beta1);
    CHECK(used == Approx(config.training.clip).epsilon(1e-5));
  }
}

TEST_CASE("a gradient within the threshold is used as it is", "[runtime]") {
  const auto run = [](double clip) {
    config::RunConfig config = matrix_config(kTwoDevices);
    config.training.clip = clip;
    train::Session session(config, {});
    session.initialise();
    take_steps(session, 2, 0, 2);
    return state_of(session);
  };
  CHECK(differences(run(1e6), run(0)) == nothing());
}

TEST_CASE("updates agree with clipped AdamW in double precision, weight decay on matrices alone",
          "[runtime]") {
  config::RunConfig config = matrix_config(kTwoDevices);
  config.training.clip = 0.05;
  config.training.weight_decay = 0.3;
  train::Session session(config, {});
  session.initialise();
  std::map<std::string, testing::AdamWState> reference;
  for (const auto& [key, one] : state_of(session)) {
    const testing::Values zero(one.master.size());
    reference[key.second] = {values_of(one.master), zero, zero};
  }
  for (int step = 1; step <= 3; ++step) {
    session.train_step(matrix_batch(2, step), {.learning_rate = 0.02, .update = step});
    const SessionState state = state_of(session);
    const double norm = norm_over_table(
        state, [](const ParameterState& p) -> const auto& { return p.gradient; });
    REQUIRE(norm > config.training.clip);
    for (const auto& [key, one] : state) {
      INFO("step " << step << ", " << key.second);
      const testing::AdamWSettings settings{
          .learning_rate = 0.02,
          .beta1 = config.training.beta1,
          .beta2 = config.training.beta2,
          .epsilon = config.training.epsilon,
          .weight_decay = is_matrix(session, key.second) ? config.training.weight_decay : 0,
          .gradient_scale = config.training.clip / norm};
      testing::AdamWState& expected = reference.at(key.second);
      testing::reference_adamw(expected, values_of(one.gradient), settings, step);
      CHECK(relative_difference(one.master, expected.parameter) < 1e-6);
      CHECK(relative_difference(one.moment1, expected.moment1) < 1e-5);
      CHECK(relative_difference(one.moment2, expected.moment2) < 1e-5);
    }
  }
}

TEST_CASE("a step whose targets are all ignored does no harm: only weight decay acts", "[runtime]") {
  config::RunConfig config = matrix_config(kTwoDevices);
  config.training.weight_decay = 0.5;
  train::Session session(config, {});
  session.initialise();
  const SessionState before = state_of(session);
  const train::Batch empty = without_targets(matrix_batch(2, 0));
  CHECK(session.evaluate(empty) == 0);
  const train::StepResult step = session.train_step(empty, {.learning_rate = 0.1, .update = 1});
  CHECK(step.loss == 0);
  CHECK(step.gradient_norm == 0);
  CHECK_FALSE(step.skipped);
  for (const auto& [key, one] : state_of(session)) {
    INFO(key.second);
    const ParameterState& old = before.at(key);
    testing::Values expected = values_of(old.master);
    if (is_matrix(session, key.second)) {
      for (double& value : expected) value *= 1 - 0.1 * 0.5;
      CHECK(relative_difference(one.master, expected) < 1e-6);
    } else {
      CHECK(same_bits(one.master, old.master));
    }
  }
  const train::StepResult next = session.train_step(matrix_batch(2, 1), {.learning_rate = 1e-2, .update = 2});
  CHECK(std::isfinite(next.loss));
  CHECK_FALSE(next.skipped);
}

TEST_CASE("loss and gradients are means over the global batch's valid tokens, however it is divided",
          "[runtime]") {
  // Three sequences with different shares of ignored targets, one of them without any valid target.
  std::vector<train::Batch> single;
  train::Batch together;
  for (int i = 0; i < 3; ++i) {
    train::Batch batch = matrix_batch(1, 20 + i);
    if (i == 1) batch = without_targets(batch);
    if (i == 2) {
      auto& targets = batch.samples[0].targets;
      std::fill(targets.begin(), targets.begin() + 30, -1);
      batch.valid_tokens = std::ranges::count_if(targets, [](std::int32_t t) { return t >= 0; });
    }
    together.samples.push_back(batch.samples[0]);
    together.valid_tokens += batch.valid_tokens;
    single.push_back(std::move(batch));
  }
  REQUIRE(together.valid_tokens > 0);
  const auto run = [](const MatrixCase& c, const train::Batch& batch, TensorValues& gradients) {
    train::Session session(matrix_config(c), {});
    session.initialise();
    const double loss = session.train_step(batch, {.learning_rate = 1e-3, .update = 1}).loss;
    gradients = collect(session, true);
    return loss;
  };
  // What the whole must be, from the plain run of each sequence by itself.
  double expected_loss = 0;
  std::map<std::string, testing::Values> expected;
  for (const train::Batch& batch : single) {
    TensorValues gradients;
    const double loss = run({Kind::kGpipe, 1, 1, 1, 2, false}, batch, gradients);
    const double share = static_cast<double>(batch.valid_tokens) / static_cast<double>(together.valid_tokens);
    expected_loss += loss * share;
    for (const auto& [name, values] : gradients) {
      testing::Values& sum = expected.try_emplace(name, values.size()).first->second;
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += share * values[i];
    }
  }
  for (const MatrixCase& c :
       {MatrixCase{Kind::kGpipe, 1, 1, 3, 2, false}, MatrixCase{Kind::kSlimPipe, 2, 4, 3, 2, false},
        MatrixCase{Kind::kTeraPipe, 4, 8, 3, 2, false}, MatrixCase{Kind::kOneFOneB, 4, 1, 3, 2, false}}) {
    INFO(c.name());
    TensorValues gradients;
    CHECK(run(c, together, gradients) == Approx(expected_loss).epsilon(1e-6));
    for (const auto& [name, values] : gradients) {
      INFO(name);
      CHECK(relative_difference(values, expected.at(name)) < 1e-5);
    }
  }
}

}  // namespace slimpipe::test
