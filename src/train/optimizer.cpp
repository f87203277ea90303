#include "slimpipe/train/optimizer.h"

#include <cmath>

#include "slimpipe/core/check.h"

namespace slimpipe::train {

std::vector<double> gradient_squares(runtime::DeviceContext& context, const model::ParameterTable& table) {
  device::Device& device = *context.device;
  const auto& parameters = context.store->parameters();
  const std::int64_t count = std::ssize(parameters);
  const device::Buffer buffer(device.arena(), device::Scope::kWorkspace, count * size_of(DType::kF64),
                              "squares of gradients");
  auto* slots = static_cast<double*>(buffer.data());
  for (std::int64_t i = 0; i < count; ++i) {
    SLIMPIPE_CHECK(parameters[i].gradient.data() != nullptr, "no backward of the step reached {}",
                   table.entries()[parameters[i].index].name);
    device.operators().sum_of_squares(device.stream(), parameters[i].gradient,
                                      Tensor(slots + i, DType::kF64, {1}));
  }
  std::vector<double> values(parameters.size());
  device.download(Tensor(slots, DType::kF64, {count}), values.data());
  std::vector<double> squares(table.entries().size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t index = parameters[i].index;
    const bool counted_elsewhere =
        table.entries()[index].part == model::Part::kEmbedding && !context.holds_first_stage;
    if (!counted_elsewhere) squares[index] = values[i];
  }
  return squares;
}

double norm_of_squares(const std::vector<double>& squares) {
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

std::string what_is_not_finite(double loss, const std::vector<double>& squares,
                               const model::ParameterTable& table) {
  if (!std::isfinite(loss)) return "loss";
  for (std::size_t i = 0; i < squares.size(); ++i) {
    if (!std::isfinite(squares[i])) return "gradient of " + table.entries()[i].name;
  }
  return {};
}

double clip_factor(double norm, double clip) {
  return clip > 0 && norm > clip ? clip / norm : 1.0;
}

void apply_adamw(runtime::DeviceContext& context, const model::ParameterTable& table,
                 const config::TrainingConfig& training, const UpdateOptions& options) {
  device::Device& device = *context.device;
  for (const model::StoredParameter& parameter : context.store->parameters()) {
    const std::int64_t n = parameter.weight.size();
    const bool decays = table.entries()[parameter.index].decay;
    device.operators().adamw(device.stream(), {.parameter = parameter.weight.reshape({n}),
                                               .remainder = parameter.remainder,
                                               .gradient = parameter.gradient.reshape({n}),
                                               .moment1 = parameter.moment1.reshape({n}),
                                               .moment2 = parameter.moment2.reshape({n}),
                                               .learning_rate = options.learning_rate,
                                               .beta1 = training.beta1,
                                               .beta2 = training.beta2,
                                               .epsilon = training.epsilon,
                                               .weight_decay = decays ? training.weight_decay : 0.0,
                                               .gradient_scale = options.gradient_scale,
                                               .step = options.update});
  }
}

}  // namespace slimpipe::train
