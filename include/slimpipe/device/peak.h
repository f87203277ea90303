#pragma once
// What one core of this machine can do at most, measured: the yardstick of `bench` and of MFU on the CPU.

#include "slimpipe/core/dtype.h"

namespace slimpipe::device {

/// FLOP/s of one core in a loop of independent fused multiply-adds in registers (fp32), or of bf16 dot
/// products with fp32 accumulation where the processor has them. The best of a few runs of some
/// milliseconds each on the calling thread. NaN for bf16 where the processor has no such instruction and
/// for other types.
[[nodiscard]] double measured_cpu_peak_flops(DType compute);

}  // namespace slimpipe::device
