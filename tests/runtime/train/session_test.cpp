// What must not change the numbers: evaluation, threads, copies of one parameter.

#include <regex>

#include "runtime/train/session_state.h"
#include "support/catch.h"

namespace slimpipe::test {
namespace {

using schedule::Kind;

std::vector<std::int64_t> live_bytes(train::Session& session) {
  std::vector<std::int64_t> bytes(session.topology().devices());
  session.each_device([&](runtime::DeviceContext& context) {
    bytes[context.index] = context.device->arena().stats().total_live;
  });
  return bytes;
}

}  // namespace

TEST_CASE("an evaluation changes nothing, and the last step's gradients make room for it", "[runtime]") {
  const MatrixCase c{Kind::kSlimPipe, 2, 4, 2, 2, true};
  train::Session session(matrix_config(c), {});
  train::Session undisturbed(matrix_config(c), {});
  session.initialise();
  undisturbed.initialise();
  for (int step = 0; step < 3; ++step) {
    take_steps(session, 2, step, 1);
    take_steps(undisturbed, 2, step, 1);
    const SessionState before = state_of(session);
    // Other numbers of microbatches have programs of their own.
    for (const int microbatches : {1, 2, 5}) {
      const train::Batch batch = matrix_batch(microbatches, 30);
      CHECK(session.evaluate(batch) == session.evaluate(batch));
    }
    CHECK(differences(state_of(session), before) == nothing());
    session.each_device([](runtime::DeviceContext& context) {
      if (!context.device->arena().live(device::Scope::kGradients).empty())
        throw_error("device {} holds gradients", context.index);
    });
  }
  CHECK(differences(state_of(session), state_of(undisturbed)) == nothing());
}

TEST_CASE("the loss of an evaluation is the loss of the step that follows on the same batch", "[runtime]") {
  train::Session session(matrix_config({Kind::kSlimPipe, 2, 4, 3, 2, false}), {});
  session.initialise();
  const double evaluated = session.evaluate(matrix_batch(3, 0));
  CHECK(take_steps(session, 3, 0, 1)[0] == evaluated);
}

TEST_CASE("both copies of a tied embedding stay equal to the bit and are trained", "[runtime]") {
  constexpr const char* kName = "model.embed_tokens.weight";
  for (const auto dtype : {config::ComputeType::kFp32, config::ComputeType::kBf16}) {
    for (const int p : {2, 4}) {
      MatrixCase c{Kind::kSlimPipe, p, 4, 2, 2, true};
      c.dtype = dtype;
      INFO(c.name());
      train::Session session(matrix_config(c), {});
      session.initialise();
      const SessionState start = state_of(session);
      take_steps(session, 2, 0, 4);
      const SessionState state = state_of(session);
      const ParameterState& first = state.at({0, kName});
      const ParameterState& last = state.at({p - 1, kName});
      CHECK(same_bits(first.master, last.master));
      CHECK(same_bits(first.moment1, last.moment1));
      CHECK(same_bits(first.moment2, last.moment2));
      CHECK(same_bits(first.weight, last.weight));
      CHECK(same_bits(first.gradient, last.gradient));
      CHECK_FALSE(same_bits(last.moment1, start.at({p - 1, kName}).moment1));
    }
  }
}

// GNU OpenMP's barriers are unseen by the thread sanitizer: what follows a parallel region would be reported.
#ifndef __SANITIZE_THREAD__
TEST_CASE("the number of threads of a device does not change a bit", "[runtime]") {
  const auto run = [](int threads) {
    config::RunConfig config = matrix_config({Kind::kSlimPipe, 2, 2, 2, 2, false});
    config.model.hidden = 128;
    config.model.ffn = 320;
    config.model.head_size = 32;
    config.device.threads = threads;
    train::Session session(config, {});
    session.initialise();
    take_steps(session, 2, 0, 3);
    return state_of(session);
  };
  const SessionState one = run(1);
  CHECK(differences(run(2), one, true) == nothing());
  CHECK(differences(run(3), one, true) == nothing());
}
#endif

TEST_CASE("steps and evaluations leave no memory behind", "[runtime]") {
  using device::Scope;
  for (const bool tied : {false, true}) {
    for (const Kind kind : {Kind::kSlimPipe, Kind::kTeraPipe, Kind::kOneFOneB, Kind::kGpipe}) {
      const MatrixCase c{kind, 4, schedule::is_sliced(kind) ? 8 : 1, 2, 2, tied};
      INFO(c.name());
      train::Session session(matrix_config(c), {});
      session.initialise();
      const auto nothing_left = [&] {
        session.each_device([&](runtime::DeviceContext& context) {
          for (const Scope scope : {Scope::kSavedActivations, Scope::kKvGradients, Scope::kExchange,
                                    Scope::kTransfer, Scope::kWorkspace}) {
            if (context.device->arena().stats().live[static_cast<std::size_t>(scope)] != 0)
              throw Error(fmt::format("device {} holds {}", context.index, device::name_of(scope)));
          }
        });
      };
      take_steps(session, 2, 0, 1);
      nothing_left();
      const std::vector<std::int64_t> after_one = live_bytes(session);
      session.evaluate(matrix_batch(2, 0));
      nothing_left();
      take_steps(session, 2, 1, 2);
      nothing_left();
      CHECK(live_bytes(session) == after_one);
    }
  }
}

TEST_CASE("a device without the memory for a step names tensor, action, step, rank and device", "[runtime]") {
  config::RunConfig config = matrix_config({Kind::kSlimPipe, 4, 8, 2, 2, false});
  std::int64_t needed = 0;
  {
    train::Session session(config, {});
    session.initialise();
    for (const train::DeviceReport& report :
         session.train_step(matrix_batch(2, 0), {.learning_rate = 1e-2, .update = 1}).devices) {
      needed = std::max(needed, static_cast<std::int64_t>(report.total_peak_bytes));
    }
  }
  config.memory.limit = needed - 1;
  train::Session session(config, {});
  session.initialise();
  session.set_step(17);
  std::string message;
  try {
    session.train_step(matrix_batch(2, 0), {.learning_rate = 1e-2, .update = 1});
  } catch (const Error& error) {
    message = error.what();
  }
  INFO(message);
  for (const char* part :
       {"device ", " (rank 0), training step 17, step ", "out of memory", " needs ", "the limit is"}) {
    CHECK(message.find(part) != std::string::npos);
  }
  CHECK(std::regex_search(message, std::regex(R"(needs \d+ bytes \([a-z_]+: fp32\[[0-9, ]+\])")));
  REQUIRE(session.first_error().report());
  CHECK_THROWS_AS(std::rethrow_exception(session.first_error().report()->exception), device::OutOfMemory);

  config.memory.limit = 100'000;  // not even the parameters
  try {
    train::Session none(config, {});
    FAIL("expected a failure");
  } catch (const device::OutOfMemory& error) {
    const std::string text = error.what();
    INFO(text);
    CHECK(text.find("(rank 0), allocation of the parameters: device ") != std::string::npos);
    CHECK(std::regex_search(text,
                            std::regex(R"((weights|moments) needs \d+ bytes \([a-z]+: fp32\[\d+\]\), but)")));
  }
}

}  // namespace slimpipe::test
