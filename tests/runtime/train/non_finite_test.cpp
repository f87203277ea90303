// Steps with NaN or infinity somewhere: nothing is updated, the cause is named, training goes on.

#include <limits>

#include "runtime/train/session_state.h"
#include "support/catch.h"

namespace slimpipe::test {
namespace {

constexpr MatrixCase kTwoDevices{schedule::Kind::kSlimPipe, 2, 4, 2, 2, false};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Sets one value of a parameter while this lives.
class Poison {
 public:
  Poison(train::Session& session, std::string name, std::size_t element, float value)
      : session_(session), name_(std::move(name)), element_(element) {
    swap_in(value);
  }
  ~Poison() { swap_in(clean_); }
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;

 private:
  void swap_in(float value) {
    change_master(session_, name_, [&](std::vector<float>& values) {
      clean_ = values.at(element_);
      values[element_] = value;
    });
  }
  train::Session& session_;
  std::string name_;
  std::size_t element_;
  float clean_ = 0;
};

}  // namespace

TEST_CASE("a step with a poisoned weight is skipped without a trace, the next one goes on", "[runtime]") {
  train::Session undisturbed(matrix_config(kTwoDevices), {});
  undisturbed.initialise();
  take_steps(undisturbed, 2, 0, 2);
  const SessionState expected = state_of(undisturbed);

  train::Session session(matrix_config(kTwoDevices), {});
  session.initialise();
  take_steps(session, 2, 0, 1);
  // A weight of the first stage, one of the last, the final norm, the head.
  for (const char* name : {"model.layers.0.self_attn.v_proj.weight", "model.layers.3.mlp.down_proj.weight",
                           "model.norm.weight", "lm_head.weight"}) {
    for (const float value : {kNan, kInfinity}) {
      INFO(name << " holds " << value);
      const Poison poison(session, name, 7, value);
      const SessionState before = state_of(session);
      const train::StepResult step =
          session.train_step(matrix_batch(2, 5), {.learning_rate = 1e-2, .update = 2});
      CHECK(step.skipped);
      CHECK(step.skip_cause == "loss");
      CHECK(differences(state_of(session), before) == kNone);
    }
  }
  take_steps(session, 2, 1, 1);
  CHECK(differences(state_of(session), expected) == kNone);
}

TEST_CASE("a gradient that is not finite under a finite loss skips the step and is named", "[runtime]") {
  // The last token of a sequence is seen by no other position, and its own target is ignored: what is wrong
  // with its embedding stays out of the loss and shows in gradients alone. It is a slice of its own, since
  // attention computes with whole tiles of keys, in which a masked NaN is still a NaN.
  MatrixCase single_token_slices = kTwoDevices;
  single_token_slices.slices = kMatrixSequence;
  train::Session session(matrix_config(single_token_slices), {});
  session.initialise();
  train::Batch batch = matrix_batch(2, 0);
  constexpr std::int32_t kToken = 60;
  for (data::Sample& sample : batch.samples) {
    for (std::int32_t& token : sample.inputs) token = token == kToken ? 0 : token;
    sample.inputs.back() = kToken;
    if (sample.targets.back() >= 0) --batch.valid_tokens;
    sample.targets.back() = -1;
  }
  {
    const Poison poison(session, "model.embed_tokens.weight", std::size_t{kToken} * 40, kNan);
    const SessionState before = state_of(session);
    const train::StepResult step = session.train_step(batch, {.learning_rate = 1e-2, .update = 1});
    CHECK(std::isfinite(step.loss));
    CHECK(step.skipped);
    CHECK(step.skip_cause == "gradient of model.embed_tokens.weight");
    CHECK(differences(state_of(session), before) == kNone);
  }
  CHECK_FALSE(session.train_step(batch, {.learning_rate = 1e-2, .update = 1}).skipped);
}

}  // namespace slimpipe::test
