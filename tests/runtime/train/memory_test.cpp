// Saved activations of the worst device, against the closed forms of arXiv 2504.14519, in units of Ma, the
// activations of one whole sequence in all layers.

#include <algorithm>

#include "slimpipe/train/memory_plan.h"

#include "runtime/train/session_state.h"
#include "support/catch.h"

namespace slimpipe::test {
namespace {

using schedule::Kind;

constexpr std::int64_t kTokens = 256;
constexpr std::int64_t kHidden = 64;

train::Batch zeros(int microbatches) {
  train::Batch batch;
  const std::vector<std::int32_t> tokens(kTokens, 1);
  for (int m = 0; m < microbatches; ++m) batch.samples.push_back({tokens, tokens, std::ssize(tokens)});
  batch.valid_tokens = microbatches * kTokens;
  return batch;
}

/// Peak bytes of saved activations by device.
std::vector<double> saved_peaks(Kind kind, int p, int n, int m, int slope, int v = 1, int layers = 4) {
  MatrixCase c{kind, p, n, m, slope, false};
  c.virtual_stages = v;
  c.layers = layers;
  config::RunConfig config = matrix_config(c);
  config.data.sequence_length = kTokens;
  config.model.hidden = kHidden;
  config.model.head_size = 16;
  config.model.ffn = 96;
  train::Session session(config, {});
  session.initialise();
  std::vector<double> peaks;
  for (const train::DeviceReport& report : session.train_step(zeros(m), {}).devices) {
    peaks.push_back(report.peak_bytes[static_cast<std::size_t>(device::Scope::kSavedActivations)]);
  }
  return peaks;
}

}  // namespace

TEST_CASE("saved activations follow the schedules' closed forms", "[runtime]") {
  constexpr int kDevices = 4;
  constexpr int kSlices = 16;
  const double whole = saved_peaks(Kind::kTeraPipe, 1, kSlices, 1, 2)[0];
  // The head's forward makes the gradient of the last layer's output, which waits for the backward.
  const double head = kTokens * kHidden * static_cast<double>(size_of(DType::kF32));
  const double layers = whole - head;
  struct Form {
    Kind kind;
    int slices, microbatches, slope;
    double sequences;  ///< times Ma / p, on the first device
  };
  const double warmup_2 = 1 + 2.0 * (kDevices - 1) / kSlices;
  const double warmup_1 = 1 + 1.0 * (kDevices - 1) / kSlices;
  for (const Form& form :
       {Form{Kind::kSlimPipe, kSlices, 4, 2, warmup_2}, Form{Kind::kSlimPipe, kSlices, 4, 1, warmup_1},
        Form{Kind::kTeraPipe, kSlices, 2, 2, 2}, Form{Kind::kTeraPipe, kSlices, 4, 2, 4},
        Form{Kind::kOneFOneB, 1, 5, 2, kDevices}, Form{Kind::kOneFOneB, 1, 2, 2, 2},
        Form{Kind::kGpipe, 1, 2, 2, 2}, Form{Kind::kGpipe, 1, 5, 2, 5}}) {
    const std::vector<double> peaks =
        saved_peaks(form.kind, kDevices, form.slices, form.microbatches, form.slope);
    INFO(schedule::name_of(form.kind)
         << " m=" << form.microbatches << " slope=" << form.slope << ": bytes of devices 0 to 3: " << peaks[0]
         << " " << peaks[1] << " " << peaks[2] << " " << peaks[3] << ", of a sequence " << layers << " and "
         << head);
    const double expected = form.sequences / kDevices * layers;
    CHECK(peaks[0] == Approx(expected).epsilon(0.005));
    CHECK(std::max({peaks[0], peaks[1], peaks[2]}) == Approx(expected).epsilon(0.005));
    CHECK(peaks[3] <= 1.005 * (expected + form.sequences * head));
  }
}

TEST_CASE("saved activations follow the closed forms with several stages a device, on eight", "[runtime]") {
  constexpr int kDevices = 8;
  constexpr int kLayers = 16;
  constexpr int kSlices = 32;
  const double head = kTokens * kHidden * static_cast<double>(size_of(DType::kF32));
  const double layers = saved_peaks(Kind::kTeraPipe, 1, kSlices, 1, 2, 1, kLayers)[0] - head;
  struct Form {
    Kind kind;
    int virtual_stages, slices, microbatches;
    double sequences;  ///< times Ma / p, on the first device
  };
  for (const Form& form :
       {Form{Kind::kSlimPipe, 1, kSlices, 4, 1 + 14.0 / 32},
        Form{Kind::kSlimPipe, 2, kSlices, 4, 1 + 14.0 / 64},
        Form{Kind::kInterleaved, 2, 1, 16, (2 * 7 + 8 + 1) / 2.0}, Form{Kind::kInterleaved, 2, 1, 3, 3}}) {
    const std::vector<double> peaks =
        saved_peaks(form.kind, kDevices, form.slices, form.microbatches, 2, form.virtual_stages, kLayers);
    INFO(schedule::name_of(form.kind) << " v=" << form.virtual_stages << ": first device " << peaks[0]
                                      << " bytes, of a sequence " << layers << " and " << head);
    const double expected = form.sequences / kDevices * layers;
    CHECK(peaks[0] == Approx(expected).epsilon(0.005));
    CHECK(*std::max_element(peaks.begin(), peaks.end() - 1) == Approx(expected).epsilon(0.005));
  }
}

TEST_CASE("a split backward frees at its input part what weight gradients do not need", "[runtime]") {
  constexpr int kDevices = 4;
  for (const Kind kind : {Kind::kZbV, Kind::kVHalf}) {
    const double sequence = saved_peaks(Kind::kGpipe, 1, 1, 1, 2, 1, 8)[0];
    const std::vector<double> peaks = saved_peaks(kind, kDevices, 1, 2 * kDevices, 2, 2, 8);
    const double most = kind == Kind::kZbV ? kDevices : (kDevices + 2) / 2.0;  // times Ma / p
    for (const double peak : peaks) CHECK(peak <= 1.005 * most / kDevices * sequence);
    CHECK(peaks[0] > 0.5 * most / kDevices * sequence);
  }
}

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Where the plan differs from what a session measures, by device and scope.
std::vector<std::string> differences(const MatrixCase& c, bool validates) {
  const config::RunConfig config = matrix_config(c);
  constexpr int kValidation = 2;
  const auto plans = train::plan_memory(config, train::make_platform(config), validates ? kValidation : 0);
  train::Session session(config, {});
  session.initialise();
  if (validates) session.evaluate(matrix_batch(kValidation, 0));
  const auto devices = session.train_step(matrix_batch(c.microbatches, 0), {}).devices;
  std::vector<std::string> found;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const auto compare = [&](std::string_view what, double measured, std::int64_t planned) {
      if (measured != static_cast<double>(planned))
        found.push_back(
            fmt::format("{}, device {}: {} {}, planned {}", c.name(), d, what, measured, planned));
    };
    for (std::size_t s = 0; s < device::kNumScopes; ++s)
      compare(name_of(static_cast<device::Scope>(s)), devices[d].peak_bytes[s], plans.at(d).peak[s]);
    compare("in all", devices[d].total_peak_bytes, plans[d].total_peak);
  }
  return found;
}

}  // namespace

TEST_CASE("the memory plan is what a run measures, to the byte and by scope", "[runtime]") {
  std::size_t checked = 0;
  for (const auto& cases : {matrix_cases({1}), matrix_cases({2}), matrix_cases({4}), bf16_cases({1, 2, 4}),
                            selective_cases({1, 2, 4}), interleaved_cases({1}), interleaved_cases({2}),
                            interleaved_cases({4}), interleaved_bf16_cases({1, 2, 4})}) {
    for (const MatrixCase& c : kSanitized ? some_of(cases) : cases) {
      for (const std::string& difference : differences(c, checked % 2 == 0)) FAIL_CHECK(difference);
      ++checked;
    }
  }
  CHECK(checked > 100);
}

}  // namespace slimpipe::test
