// The seams a session stands on: any backend's devices, any runner of steps.

#include <map>
#include <mutex>

#include "slimpipe/runtime/stage_runner.h"

#include "support/catch.h"
#include "support/equality_matrix.h"
#include "support/reference_device.h"

namespace slimpipe::test {
namespace {

using schedule::Kind;

/// Passes everything on and counts the compute steps, as a runner that takes the time would.
class CountingRunner final : public runtime::StepRunner {
 public:
  CountingRunner(std::unique_ptr<runtime::StepRunner> inner, std::int64_t& steps)
      : inner_(std::move(inner)), steps_(steps) {}
  void begin(const runtime::Program& program, const runtime::StepTokens& tokens) override {
    inner_->begin(program, tokens);
  }
  void run(const runtime::Step& step, device::Stream& stream) override {
    ++steps_;
    inner_->run(step, stream);
  }
  std::span<std::byte> message(const runtime::Step& step, const runtime::Transfer& transfer) override {
    return inner_->message(step, transfer);
  }
  void message_done(const runtime::Step& step, const runtime::Transfer& transfer) override {
    inner_->message_done(step, transfer);
  }
  std::vector<double> losses() override { return inner_->losses(); }
  void check_nothing_left() const override { inner_->check_nothing_left(); }

 private:
  std::unique_ptr<runtime::StepRunner> inner_;
  std::int64_t& steps_;
};

}  // namespace

TEST_CASE("a session runs on another backend and with another runner", "[runtime]") {
  const config::RunConfig config = matrix_config({Kind::kSlimPipe, 2, 4, 2, 2, true});
  std::map<int, std::int64_t> steps = {{0, 0}, {1, 0}};  // by device; made before the threads use it
  const runtime::RunnerFactory layers = train::layer_runner(config);
  train::Session session(
      config, {},
      {.backend = std::make_unique<ReferenceBackend>(), .make_runner = [&](runtime::DeviceContext& context) {
         return std::make_unique<CountingRunner>(layers(context), steps.at(context.index));
       }});
  CHECK(session.backend_name() == "reference");
  session.initialise();
  train::Session cpu(config, {});
  CHECK(cpu.backend_name() == "cpu");
  cpu.initialise();
  for (int step = 0; step < 2; ++step) {
    const train::Batch batch = matrix_batch(2, step);
    const train::UpdatePlan plan{.learning_rate = 1e-2, .update = step + 1};
    CHECK(session.train_step(batch, plan).loss == Approx(cpu.train_step(batch, plan).loss).epsilon(1e-5));
  }
  for (const auto& [device, count] : steps) CHECK(count > 0);
}

TEST_CASE("a program that keeps weight gradients for later is refused, not computed wrongly", "[runtime]") {
  train::Session session(matrix_config({Kind::kGpipe, 1, 1, 1, 2, false}), {});
  std::vector<std::string> problems;
  session.each_device([&](runtime::DeviceContext& context) {
    for (const auto kind : {schedule::ActionKind::kBackwardInput, schedule::ActionKind::kBackwardWeight}) {
      const runtime::Program program{.steps = {{.action = {.kind = kind}}}};
      try {
        context.runner->begin(program, {});
      } catch (const Error& error) {
        problems.emplace_back(error.what());
      }
    }
  });
  REQUIRE(problems.size() == 2);
  for (const std::string& problem : problems) {
    CHECK(problem.find("apart are not available in this build") != std::string::npos);
  }
}

TEST_CASE("a backend that this build does not have is refused by name", "[runtime]") {
  config::RunConfig config = matrix_config({Kind::kGpipe, 1, 1, 1, 2, false});
  config.device.backend = "cuda";
  try {
    train::Session session(config, {});
    FAIL("a session on a backend that does not exist");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).find("device.backend: cuda is not available") != std::string::npos);
  }
}

}  // namespace slimpipe::test
