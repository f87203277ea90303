#include "slimpipe/model/rope.h"

#include <cmath>
#include <numbers>

#include "slimpipe/core/check.h"

#include "support/catch.h"

namespace slimpipe::model {
namespace {

using config::RopeConfig;
using config::RopeKind;

TEST_CASE("plain frequencies fall geometrically from one", "[unit]") {
  const RopeFrequencies f = rope_frequencies({.theta = 10000}, 8);
  REQUIRE(f.inverse.size() == 4);
  CHECK(f.inverse[0] == 1.0);
  CHECK(f.inverse[1] == Approx(0.1));
  CHECK(f.inverse[2] == Approx(0.01));
  CHECK(f.inverse[3] == Approx(0.001));
  CHECK(f.magnitude == 1.0);
}

TEST_CASE("a head that has no pairs, or for ntk only one, has no frequencies", "[unit]") {
  for (const std::int64_t head_size : {-2, 0, 1, 7}) {
    INFO(head_size);
    CHECK_THROWS_AS(rope_frequencies({}, head_size), Error);
  }
  CHECK(rope_frequencies({}, 2).inverse.size() == 1);
  CHECK_THROWS_AS(rope_frequencies({.kind = RopeKind::kNtk}, 2), Error);
}

TEST_CASE("linear scaling divides every frequency", "[unit]") {
  const RopeFrequencies plain = rope_frequencies({.theta = 5000}, 10);
  const RopeFrequencies linear =
      rope_frequencies({.kind = RopeKind::kLinear, .theta = 5000, .factor = 4}, 10);
  for (std::size_t i = 0; i < 5; ++i) CHECK(linear.inverse[i] == Approx(plain.inverse[i] / 4));
  CHECK(linear.magnitude == 1.0);
}

TEST_CASE("NTK-aware scaling keeps the fastest frequency and divides the slowest by the factor", "[unit]") {
  const RopeFrequencies plain = rope_frequencies({.theta = 10000}, 64);
  const RopeFrequencies ntk = rope_frequencies({.kind = RopeKind::kNtk, .theta = 10000, .factor = 8}, 64);
  CHECK(ntk.inverse.front() == 1.0);
  CHECK(ntk.inverse.back() == Approx(plain.inverse.back() / 8));
  CHECK(ntk.inverse[16] == Approx(std::pow(10000 * std::pow(8.0, 64.0 / 62.0), -0.5)));
}

TEST_CASE("YaRN keeps fast dimensions, interpolates slow ones and ramps between", "[unit]") {
  const RopeConfig rope{.kind = RopeKind::kYarn,
                        .theta = 10000,
                        .factor = 16,
                        .original_context = 4096,
                        .beta_fast = 32,
                        .beta_slow = 1};
  const RopeFrequencies plain = rope_frequencies({.theta = 10000}, 128);
  const RopeFrequencies yarn = rope_frequencies(rope, 128);
  // Dimension i turns 4096 / (2π · 10000^(i/64)) times: 32 at i = 20.9, once at i = 45.03. The ramp goes
  // from 20 to 46.
  for (std::size_t i = 0; i < 64; ++i) {
    const double ramp = i <= 20 ? 0 : i >= 46 ? 1 : (static_cast<double>(i) - 20) / 26;
    INFO(i);
    CHECK(yarn.inverse[i] ==
          Approx(plain.inverse[i] * (1 - ramp) + plain.inverse[i] / 16 * ramp).epsilon(1e-12));
  }
  CHECK(yarn.magnitude == Approx(1.2772588722239782));
}

TEST_CASE("YaRN without extension changes nothing, and its range is cut to the dimensions there are",
          "[unit]") {
  const RopeConfig none{.kind = RopeKind::kYarn, .theta = 10000, .factor = 1, .original_context = 4096};
  const RopeFrequencies plain = rope_frequencies({.theta = 10000}, 16);
  const RopeFrequencies same = rope_frequencies(none, 16);
  for (std::size_t i = 0; i < 8; ++i) CHECK(same.inverse[i] == Approx(plain.inverse[i]));
  CHECK(same.magnitude == 1.0);

  // A context so short that no dimension turns beta_fast times: both ends of the ramp fall together at 0.
  const RopeConfig tiny{.kind = RopeKind::kYarn, .theta = 10000, .factor = 4, .original_context = 6};
  const RopeFrequencies cut = rope_frequencies(tiny, 16);
  CHECK(cut.inverse[0] == Approx(1.0));
  for (std::size_t i = 1; i < 8; ++i) CHECK(cut.inverse[i] == Approx(plain.inverse[i] / 4));
}

TEST_CASE("Llama 3 scaling keeps short wavelengths, divides long ones and blends between", "[unit]") {
  const RopeConfig rope{.kind = RopeKind::kLlama3,
                        .theta = 500000,
                        .factor = 8,
                        .original_context = 8192,
                        .low_frequency_factor = 1,
                        .high_frequency_factor = 4};
  const RopeFrequencies scaled = rope_frequencies(rope, 128);
  int kept = 0;
  int divided = 0;
  int blended = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double inverse = 1 / std::pow(500000, static_cast<double>(2 * i) / 128);
    const double wavelength = 2 * std::numbers::pi / inverse;
    double expected = 0;
    if (wavelength < 8192.0 / 4) {
      expected = inverse;
      ++kept;
    } else if (wavelength > 8192.0 / 1) {
      expected = inverse / 8;
      ++divided;
    } else {
      const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * inverse / 8 + smooth * inverse;
      ++blended;
    }
    INFO(i);
    CHECK(scaled.inverse[i] == Approx(expected).epsilon(1e-12));
  }
  CHECK(kept == 29);
  CHECK(blended == 6);
  CHECK(divided == 29);
  CHECK(scaled.magnitude == 1.0);
}

}  // namespace
}  // namespace slimpipe::model
