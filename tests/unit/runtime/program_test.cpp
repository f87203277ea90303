#include "slimpipe/runtime/program.h"

#include <numeric>

#include "slimpipe/schedule/exchange.h"

#include "support/catch.h"

namespace slimpipe::runtime {
namespace {

schedule::Spec spec(schedule::Kind kind, int p, int m, int n, int slope) {
  return {.kind = kind,
          .pipeline = p,
          .virtual_stages = 1,
          .microbatches = m,
          .slices = n,
          .warmup_slope = slope};
}

CompileInput input_for(int p, std::int64_t tied_bytes) {
  CompileInput input;
  input.stage_layers.assign(static_cast<std::size_t>(p), 2);
  input.message_bytes = 1024;
  input.tied_bytes = tied_bytes;
  input.devices.resize(p);
  std::iota(input.devices.begin(), input.devices.end(), 0);
  return input;
}

/// What validate finds in programs that can run; compared with, so that a failing test prints the findings.
const std::vector<std::string> sound;

std::vector<Program> small_programs() {
  return compile(schedule::build(spec(schedule::Kind::kSlimPipe, 2, 2, 2, 2)), input_for(2, 64));
}

std::size_t find_step(const Program& program, StepKind kind, schedule::Phase phase) {
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].kind == kind && program.steps[i].phase == phase) return i;
  }
  FAIL("no such step");
  return 0;
}

}  // namespace

TEST_CASE("compiled programs of every schedule are sound", "[unit]") {
  using schedule::Kind;
  for (const Kind kind : {Kind::kGpipe, Kind::kOneFOneB, Kind::kTeraPipe, Kind::kSlimPipe}) {
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int m : {1, 2, 5}) {
        for (const int n : {1, 2, 3, 8, 17}) {
          if (n > 1 && !schedule::is_sliced(kind)) continue;
          for (const int slope : {1, 2, 3, 6}) {
            const schedule::Spec s = spec(kind, p, m, n, slope);
            if (!schedule::problems(s).empty()) continue;
            INFO(schedule::name_of(kind) << " p=" << p << " m=" << m << " n=" << n << " slope=" << slope);
            CHECK(validate(compile(schedule::build(s), input_for(p, 64))) == sound);
            CHECK(validate(compile(schedule::build_forward_only(s), input_for(p, 0))) == sound);
          }
        }
      }
    }
  }
}

TEST_CASE("compiled programs of schedules with an exchange are sound, whatever layers the stages have",
          "[unit]") {
  using schedule::Exchange;
  for (const int p : {2, 3, 5}) {
    for (const int v : {1, 2}) {
      for (const auto exchange : {Exchange::kPairwise, Exchange::kBalanced}) {
        for (const bool early : {false, true}) {
          schedule::Spec s = spec(schedule::Kind::kSlimPipe, p, 3, 2 * p, 2);
          s.virtual_stages = v;
          const auto exchanging = schedule::with_exchange(schedule::build(s), exchange, 256, early);
          REQUIRE_FALSE(exchanging.exchange.slots.empty());
          CompileInput input = input_for(p, 64);
          input.attention = {.tokens = 256, .heads = 4, .kv_heads = 2, .head_size = 8};
          input.stage_layers.clear();
          for (int stage = 0; stage < s.stages(); ++stage) input.stage_layers.push_back(1 + stage * 2 % 3);
          INFO("p=" << p << " v=" << v << " " << schedule::name_of(exchange) << " early " << early);
          CHECK(validate(compile(exchanging, input)) == sound);
        }
      }
    }
  }
}

TEST_CASE("receives are posted one action before they are waited for", "[unit]") {
  const std::vector<Program> programs = small_programs();
  const Program& second = programs[1];
  CHECK(second.steps[0].kind == StepKind::kPostReceive);
  CHECK(second.steps[1].kind == StepKind::kPostReceive);  // of the next forward, before the first waits
  CHECK(second.steps[2].kind == StepKind::kWaitReceive);
}

TEST_CASE("a step is told with the layer of the model, or the tensor that moves and its other end",
          "[unit]") {
  using schedule::Phase;
  const std::vector<Program> programs = small_programs();  // 4 layers, 2 devices
  const auto told = [&](int device, StepKind kind, Phase phase) {
    const Program& program = programs[device];
    return describe(program, program.steps[find_step(program, kind, phase)]);
  };
  CHECK(told(0, StepKind::kCompute, Phase::kAttention) == "F0.0.0 attention, layer 0 (model.layers.0)");
  CHECK(told(1, StepKind::kCompute, Phase::kAttention) == "F0.0.0 attention, layer 0 (model.layers.2)");
  CHECK(told(1, StepKind::kCompute, Phase::kLoss) == "F0.0.0 loss");
  CHECK(told(0, StepKind::kPostSend, Phase::kSendActivation) ==
        "post send: F0.0.0 send activation: hidden states, 1024 bytes to device 1");
  CHECK(told(1, StepKind::kWaitReceive, Phase::kReceiveActivation) ==
        "wait receive: F0.0.0 receive activation: hidden states, 1024 bytes from device 0");
  CHECK(told(0, StepKind::kWaitReceive, Phase::kReceiveGradient) ==
        "wait receive: B0.0.1 receive gradient: gradient of the hidden states, 1024 bytes from device 1");
  CHECK(told(1, StepKind::kWaitSend, Phase::kCombineTiedGradients) ==
        "wait send: combine tied gradients: gradient of the tied embedding, 64 bytes to device 0");
}

TEST_CASE("a program set that cannot finish is told apart, with what each device waits for", "[unit]") {
  std::vector<Program> programs = small_programs();
  // Device 0 waits for its first gradient before it sends its first activation.
  Program& first = programs[0];
  const std::size_t wait = find_step(first, StepKind::kWaitReceive, schedule::Phase::kReceiveGradient);
  const Step moved = first.steps[wait];
  const std::size_t post = find_step(first, StepKind::kPostReceive, schedule::Phase::kReceiveGradient);
  const Step posted = first.steps[post];
  first.steps.erase(first.steps.begin() + static_cast<std::ptrdiff_t>(wait));
  first.steps.erase(first.steps.begin() + static_cast<std::ptrdiff_t>(post));
  first.steps.insert(first.steps.begin(), {posted, moved});
  const std::vector<std::string> problems = validate(programs);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].find("deadlock: device 0 stops at step 2: wait receive") != std::string::npos);
  CHECK(problems[1].find("deadlock: device 1 stops at") != std::string::npos);
}

TEST_CASE("ends of a channel that disagree, and transfers posted twice or never waited for, are named",
          "[unit]") {
  SECTION("sizes differ") {
    std::vector<Program> programs = small_programs();
    programs[0]
        .transfers[programs[0]
                       .steps[find_step(programs[0], StepKind::kPostSend, schedule::Phase::kSendActivation)]
                       .transfer]
        .bytes = 7;
    const auto problems = validate(programs);
    REQUIRE_FALSE(problems.empty());
    CHECK(problems[0].find("channel 0 -> 1 (activation)") != std::string::npos);
  }
  SECTION("a wait is missing") {
    std::vector<Program> programs = small_programs();
    const std::size_t wait = find_step(programs[0], StepKind::kWaitSend, schedule::Phase::kSendActivation);
    programs[0].steps.erase(programs[0].steps.begin() + static_cast<std::ptrdiff_t>(wait));
    REQUIRE_FALSE(validate(programs).empty());
  }
  SECTION("a step is repeated") {
    std::vector<Program> programs = small_programs();
    const std::size_t post = find_step(programs[0], StepKind::kPostSend, schedule::Phase::kSendActivation);
    const Step again = programs[0].steps[post];
    programs[0].steps.insert(programs[0].steps.begin() + static_cast<std::ptrdiff_t>(post), again);
    REQUIRE_FALSE(validate(programs).empty());
  }
}

TEST_CASE("sends in flight on a channel stay within the bound", "[unit]") {
  const auto programs =
      compile(schedule::build(spec(schedule::Kind::kTeraPipe, 4, 3, 8, 2)), input_for(4, 0));
  for (const Program& program : programs) {
    int activations = 0;
    int gradients = 0;
    for (const Step& step : program.steps) {
      int& count = step.phase == schedule::Phase::kSendActivation ? activations : gradients;
      if (step.kind == StepKind::kPostSend) ++count;
      if (step.kind == StepKind::kWaitSend) --count;
      if (step.kind == StepKind::kPostSend)
        CHECK(count <= program.sends_in_flight.at(program.transfers[step.transfer].channel));
    }
    CHECK(activations == 0);
    CHECK(gradients == 0);
  }
}

}  // namespace slimpipe::runtime
