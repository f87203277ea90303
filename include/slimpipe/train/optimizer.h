#pragma once
// Gradient norm, clipping and AdamW over a device's parameters.

#include <cstdint>
#include <string>
#include <vector>

#include "slimpipe/config/run_config.h"
#include "slimpipe/model/parameters.h"
#include "slimpipe/runtime/engine.h"

namespace slimpipe::train {

/// Sums of squares of the device's gradients by table index, 0 for entries it does not hold or that
/// another stage counts (the tied embedding counts on the first stage only). Reads back from the device.
[[nodiscard]] std::vector<double> gradient_squares(runtime::DeviceContext& context,
                                                   const model::ParameterTable& table);

/// Square root of the sum in table order, so that it does not depend on which device held what.
[[nodiscard]] double norm_of_squares(const std::vector<double>& squares);

/// "loss", or "gradient of NAME" of the first entry in table order whose sum of squares is not finite; empty
/// where everything is finite.
[[nodiscard]] std::string what_is_not_finite(double loss, const std::vector<double>& squares,
                                             const model::ParameterTable& table);

/// Factor that brings a gradient of this norm to at most `clip`; 1 where clip is 0 or the norm is within.
[[nodiscard]] double clip_factor(double norm, double clip);

struct UpdateOptions {
  double learning_rate = 0;
  double gradient_scale = 1;
  std::int64_t update = 1;  ///< 1-based count of applied updates, for Adam's bias correction
};
/// One AdamW update of every parameter the device holds; weight decay on matrices alone.
void apply_adamw(runtime::DeviceContext& context, const model::ParameterTable& table,
                 const config::TrainingConfig& training, const UpdateOptions& options);

}  // namespace slimpipe::train
