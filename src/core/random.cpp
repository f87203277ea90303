#include "slimpipe/core/random.h"

#include <cmath>
#include <numbers>

namespace slimpipe {
namespace {

// Round constants of Philox 4x32.
constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
constexpr int kRounds = 10;

std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

}  // namespace

std::array<std::uint32_t, 4> random_block(std::uint64_t seed, RandomStream stream, std::uint64_t index) {
  std::array<std::uint32_t, 4> c = {low(index), high(index), stream.detail,
                                    static_cast<std::uint32_t>(stream.use)};
  std::uint32_t k0 = low(seed);
  std::uint32_t k1 = high(seed);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiplier0 * c[0];
    const std::uint64_t p1 = kMultiplier1 * c[2];
    c = {high(p1) ^ c[1] ^ k0, low(p1), high(p0) ^ c[3] ^ k1, low(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

std::uint64_t random_u64(std::uint64_t seed, RandomStream stream, std::uint64_t index) {
  const auto block = random_block(seed, stream, index / 2);
  const std::size_t half = (index % 2) * 2;
  return static_cast<std::uint64_t>(block[half]) | static_cast<std::uint64_t>(block[half + 1]) << 32;
}

double random_uniform(std::uint64_t seed, RandomStream stream, std::uint64_t index) {
  return static_cast<double>(random_u64(seed, stream, index) >> 11) * 0x1.0p-53;
}

double random_normal(std::uint64_t seed, RandomStream stream, std::uint64_t index) {
  // The two values of a pair share their uniforms: element 2k is the cosine, 2k + 1 the sine.
  const auto block = random_block(seed, stream, index / 2);
  const double u1 = (static_cast<double>(block[0]) + 1.0) * 0x1.0p-32;  // (0, 1], so the logarithm is finite
  const double u2 = static_cast<double>(block[1]) * 0x1.0p-32 + static_cast<double>(block[2]) * 0x1.0p-64;
  const double radius = std::sqrt(-2.0 * std::log(u1));
  const double angle = 2.0 * std::numbers::pi * u2;
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace slimpipe
