// The seams a session stands on: any backend's devices, any runner of steps.

#include <functional>
#include <map>
#include <regex>

#include "slimpipe/runtime/stage_runner.h"

#include "support/catch.h"
#include "support/equality_matrix.h"
#include "support/reference_device.h"

namespace slimpipe::test {
namespace {

using schedule::Kind;

/// Passes everything on and calls `before` ahead of each compute step, as a runner that takes the time would.
class WatchedRunner final : public runtime::StepRunner {
 public:
  using Before = std::function<void(const runtime::Step&)>;
  WatchedRunner(std::unique_ptr<runtime::StepRunner> inner, Before before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  void begin(const runtime::Program& program, const runtime::StepTokens& tokens) override {
    inner_->begin(program, tokens);
  }
  void run(const runtime::Step& step, device::Stream& stream) override {
    before_(step);
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
  Before before_;
};

}  // namespace

TEST_CASE("a session runs on another backend and with another runner", "[runtime]") {
  const config::RunConfig config = matrix_config({Kind::kSlimPipe, 2, 4, 2, 2, true});
  std::map<int, std::int64_t> steps = {{0, 0}, {1, 0}};  // by device; made before the threads use it
  const runtime::RunnerFactory layers = train::layer_runner(config);
  train::Session session(
      config, {},
      {.backend = std::make_unique<ReferenceBackend>(), .make_runner = [&](runtime::DeviceContext& context) {
         std::int64_t& count = steps.at(context.index);
         return std::make_unique<WatchedRunner>(layers(context), [&](const runtime::Step&) { ++count; });
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

TEST_CASE("what a device throws in a step is told with device, rank, training step and action", "[runtime]") {
  const config::RunConfig config = matrix_config({Kind::kSlimPipe, 2, 4, 2, 2, false});
  const runtime::RunnerFactory layers = train::layer_runner(config);
  const auto fail_on_device_1 = [&](runtime::DeviceContext& context) {
    return std::make_unique<WatchedRunner>(layers(context), [&context](const runtime::Step& step) {
      if (context.index == 1 && describe(step) == "B0.1.2 attention backward, layer 1")
        throw std::runtime_error("the cause");
    });
  };
  train::Session session(config, {},
                         {.backend = device::make_cpu_backend(), .make_runner = fail_on_device_1});
  session.initialise();
  session.set_step(17);
  std::string text;
  try {
    session.train_step(matrix_batch(2, 0), {.learning_rate = 1e-2, .update = 1});
  } catch (const Error& error) {
    text = error.what();
  }
  INFO(text);
  CHECK(std::regex_match(
      text, std::regex(R"(device 1 \(rank 0\), training step 17, step \d+ of \d+: )"
                       R"(B0\.1\.2 attention backward, layer 1 \(model\.layers\.3\): the cause)")));
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
