#pragma once
// Which instruction sets the vectorised files are compiled for. Included before anything of Highway.
//
// On x86: the base, SSE4, AVX2 and AVX-512; the others in between cost build time and gain nothing
// here. On Arm, NEON: vectors of a length unknown to the compiler cannot be held in a struct.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/detect_targets.h>

// Not known to every version of Highway from 1.0.3 on.
#ifndef HWY_AVX3_ZEN4
#define HWY_AVX3_ZEN4 0
#endif
#ifndef HWY_AVX3_SPR
#define HWY_AVX3_SPR 0
#endif
