// Saved activations of the worst device, against the closed forms of arXiv 2504.14519, in units of Ma, the
// activations of one whole sequence in all layers.

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
std::vector<double> saved_peaks(Kind kind, int p, int n, int m, int slope) {
  config::RunConfig config = matrix_config({kind, p, n, m, slope, false});
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

}  // namespace slimpipe::test
