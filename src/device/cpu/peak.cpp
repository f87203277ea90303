#include "slimpipe/device/peak.h"

#include <algorithm>
#include <chrono>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace slimpipe::device {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// `iterations` rounds of twelve independent multiply-adds, enough to hide their latency and few enough for
/// sixteen registers. Returns the FLOPs done; the sum goes to `sink` so that nothing is left out.
double fma_loop(std::int64_t iterations, float* sink) {
  const hn::ScalableTag<float> tag;
  const auto x = hn::Set(tag, 0.999F);
  const auto y = hn::Set(tag, 1e-6F);
  auto a0 = hn::Set(tag, 0.0F), a1 = hn::Set(tag, 1.0F), a2 = hn::Set(tag, 2.0F), a3 = hn::Set(tag, 3.0F);
  auto a4 = hn::Set(tag, 4.0F), a5 = hn::Set(tag, 5.0F), a6 = hn::Set(tag, 6.0F), a7 = hn::Set(tag, 7.0F);
  auto a8 = hn::Set(tag, 8.0F), a9 = hn::Set(tag, 9.0F), a10 = hn::Set(tag, 10.0F), a11 = hn::Set(tag, 11.0F);
  for (std::int64_t i = 0; i < iterations; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y), a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y), a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y), a10 = hn::MulAdd(a10, x, y), a11 = hn::MulAdd(a11, x, y);
  }
  const auto sum = hn::Add(
      hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
      hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
  *sink = hn::GetLane(hn::SumOfLanes(tag, sum));
  return 12.0 * 2.0 * static_cast<double>(hn::Lanes(tag)) * static_cast<double>(iterations);
}

}  // namespace HWY_NAMESPACE
}  // namespace slimpipe::device
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slimpipe::device {
HWY_EXPORT(fma_loop);
namespace {

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bf16"))) double bf16_dot_loop(std::int64_t iterations, float* sink) {
  const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3c00));
  __m512 a[12];
  for (int j = 0; j < 12; ++j) a[j] = _mm512_set1_ps(static_cast<float>(j));
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (auto& accumulator : a) accumulator = _mm512_dpbf16_ps(accumulator, x, x);
  }
  for (const auto& accumulator : a) {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, accumulator);
    *sink += lanes[0];
  }
  return 12.0 * 2.0 * 32.0 * static_cast<double>(iterations);
}
#endif

template <typename Loop>
double best_rate(Loop loop) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kIterations = 400000;  // a few milliseconds
  constexpr int kRepeats = 5;
  double best = 0;
  volatile float kept = 0;
  for (int i = 0; i < kRepeats; ++i) {
    float sink = 0;
    const auto start = Clock::now();
    const double flops = loop(kIterations, &sink);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    kept = kept + sink;
    best = std::max(best, flops / seconds);
  }
  return best;
}

}  // namespace

double measured_cpu_peak_flops(DType compute) {
  if (compute == DType::kF32) {
    return best_rate([](std::int64_t iterations, float* sink) {
      return HWY_DYNAMIC_DISPATCH(fma_loop)(iterations, sink);
    });
  }
#if defined(__x86_64__)
  if (compute == DType::kBF16 && __builtin_cpu_supports("avx512bf16")) return best_rate(bf16_dot_loop);
#endif
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace slimpipe::device
#endif  // HWY_ONCE
