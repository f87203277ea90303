#pragma once
// The equality matrix: whatever the schedule, pipeline size, slices and microbatches, a step's loss and
// gradients, and the parameters after ten steps, equal those of the plain run on one device without slices.
// Where two runs do the same sums in the same order, they are equal to the bit.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/core/random.h"
#include "slimpipe/train/session.h"

namespace slimpipe::test {

struct MatrixCase {
  schedule::Kind kind = schedule::Kind::kGpipe;
  int pipeline = 1;
  int slices = 1;
  int microbatches = 1;
  int warmup_slope = 2;
  bool tied = false;
  config::ComputeType dtype = config::ComputeType::kFp32;
  std::string_view recompute = "none";
  int virtual_stages = 1;
  int layers = 4;

  [[nodiscard]] std::string name() const {
    return fmt::format("{} p={} v={} n={} m={} slope={} {} {} recompute={} layers={}",
                       schedule::name_of(kind), pipeline, virtual_stages, slices, microbatches, warmup_slope,
                       tied ? "tied" : "untied", dtype == config::ComputeType::kFp32 ? "fp32" : "bf16",
                       recompute, layers);
  }
};

inline constexpr std::int64_t kMatrixSequence = 48;
inline constexpr std::int64_t kMatrixVocabulary = 61;
inline constexpr int kMatrixSteps = 10;

/// The cases whose pipeline size is in `pipelines`.
inline std::vector<MatrixCase> matrix_cases(const std::vector<int>& pipelines) {
  using schedule::Kind;
  std::vector<MatrixCase> cases;
  for (const bool tied : {false, true}) {
    for (const int p : pipelines) {
      for (const int m : {1, 2, 3}) {
        cases.push_back({Kind::kGpipe, p, 1, m, 2, tied});
        for (const int n : {1, 2, 4, 8, 16}) {
          for (const int slope : {1, 2}) cases.push_back({Kind::kSlimPipe, p, n, m, slope, tied});
          for (const int slope : {1, 2}) cases.push_back({Kind::kTeraPipe, p, n, m, slope, tied});
        }
        cases.push_back({Kind::kOneFOneB, p, 1, m, 2, tied});
      }
    }
  }
  return cases;
}

/// Kinds that put several stages on a device or split backwards, on a model of 8 layers.
inline std::vector<MatrixCase> interleaved_cases(const std::vector<int>& pipelines) {
  using schedule::Kind;
  constexpr int kLayers = 8;
  std::vector<MatrixCase> cases;
  const auto add = [&](Kind kind, int p, int v, int n, int m) {
    MatrixCase c{kind, p, n, m, 1 + (m + n / 2) % 2, (m + v + n) % 2 == 0};
    c.virtual_stages = v;
    c.layers = kLayers;
    if (p * v <= kLayers) cases.push_back(c);
  };
  for (const int p : pipelines) {
    for (const int m : {1, 2, 3, 6}) {
      for (const int v : {2, 4}) add(Kind::kInterleaved, p, v, 1, m);
      for (const Kind kind : {Kind::kZbV, Kind::kVHalf}) add(kind, p, 2, 1, m);
      for (const int n : {4, 6, 8}) {  // with four devices 6 slices are a group that is no multiple of them
        for (const int v : {2, 4}) add(Kind::kSlimPipe, p, v, n, m);
        for (const int v : {1, 2}) add(Kind::kSlimPipeZb, p, v, n, m);
      }
    }
  }
  return cases;
}

/// Those of them that run in bf16, and with selective recomputation.
inline std::vector<MatrixCase> interleaved_bf16_cases(const std::vector<int>& pipelines) {
  std::vector<MatrixCase> cases;
  for (MatrixCase c : interleaved_cases(pipelines)) {
    if (c.microbatches != 3) continue;
    c.dtype = config::ComputeType::kBf16;
    cases.push_back(c);
    c.recompute = "selective";
    cases.push_back(c);
  }
  return cases;
}

/// Those of matrix_cases that run in bf16, too.
inline std::vector<MatrixCase> bf16_cases(const std::vector<int>& pipelines) {
  std::vector<MatrixCase> cases;
  for (MatrixCase c : matrix_cases(pipelines)) {
    if (c.microbatches != 2 || (c.slices != 1 && c.slices != 4)) continue;
    c.dtype = config::ComputeType::kBf16;
    cases.push_back(c);
  }
  return cases;
}

/// Those of them that run with selective recomputation, in both types.
inline std::vector<MatrixCase> selective_cases(const std::vector<int>& pipelines) {
  std::vector<MatrixCase> cases;
  for (const auto dtype : {config::ComputeType::kFp32, config::ComputeType::kBf16}) {
    for (MatrixCase c : matrix_cases(pipelines)) {
      if (c.microbatches != 2 || c.warmup_slope != 2 || (c.slices != 1 && c.slices != 8)) continue;
      c.dtype = dtype;
      c.recompute = "selective";
      cases.push_back(c);
    }
  }
  return cases;
}

/// Each option of the matrix that the case has, also those of sliced sequences apart.
inline std::set<std::string> options_of(const MatrixCase& c) {
  const std::string_view dtype = c.dtype == config::ComputeType::kFp32 ? "fp32" : "bf16";
  const std::string_view kind = schedule::name_of(c.kind);
  std::set<std::string> options = {fmt::format("{} slope={}", kind, c.warmup_slope),
                                   fmt::format("{} v={}", kind, c.virtual_stages),
                                   fmt::format("p={}", c.pipeline),
                                   fmt::format("n={}", c.slices),
                                   fmt::format("m={}", c.microbatches),
                                   c.tied ? "tied" : "untied",
                                   std::string(dtype),
                                   std::string(c.recompute)};
  if (c.slices > 1) options.insert({fmt::format("sliced p={}", c.pipeline), fmt::format("sliced {}", dtype)});
  return options;
}

/// The cases that run under sanitizers, which slow everything down ten times and more: every seventh, and
/// each that has an option which those before it have not.
inline std::vector<MatrixCase> some_of(const std::vector<MatrixCase>& cases) {
  std::vector<MatrixCase> chosen;
  std::set<std::string> met;
  const auto choose = [&](const MatrixCase& c) {
    chosen.push_back(c);
    met.merge(options_of(c));
  };
  for (std::size_t i = 1; i < cases.size(); i += 7) choose(cases[i]);
  for (const MatrixCase& c : cases) {
    const std::set<std::string> options = options_of(c);
    if (!std::includes(met.begin(), met.end(), options.begin(), options.end())) choose(c);
  }
  return chosen;
}

inline config::RunConfig matrix_config(const MatrixCase& c) {
  config::RunConfig config;
  config.model = {.layers = c.layers,
                  .hidden = 40,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_size = 8,
                  .ffn = 56,
                  .vocabulary = kMatrixVocabulary,
                  .tied_embeddings = c.tied};
  config.memory.recompute = std::string(c.recompute);
  config.data.sequence_length = kMatrixSequence;
  config.parallel.pipeline = c.pipeline;
  config.parallel.virtual_stages = c.virtual_stages;
  config.schedule.kind = c.kind;
  config.schedule.slices = c.slices;
  config.schedule.warmup_slope = c.warmup_slope;
  config.training.microbatches = c.microbatches;
  config.training.dtype = c.dtype;
  config.training.seed = 11;
  config.training.epsilon = 1e-3;  // large, so that rounding noise of zero gradients does not become steps
  config.training.clip = 0.5;
  config.log.watchdog_seconds = 20;
  return config;
}

/// Random tokens of one step; some targets are ignored, and the second microbatch ends in padding that is not
/// a whole number of slices.
inline train::Batch matrix_batch(int microbatches, int step, std::int64_t sequence = kMatrixSequence) {
  train::Batch batch;
  const RandomStream stream{RandomStream::Use::kTest, static_cast<std::uint32_t>(step)};
  std::uint64_t index = 0;
  for (int m = 0; m < microbatches; ++m) {
    data::Sample& sample = batch.samples.emplace_back();
    sample.valid_tokens = m == 1 ? sequence * 3 / 4 - 1 : sequence;
    for (std::int64_t t = 0; t < sequence; ++t) {
      const auto token = [&] {
        return static_cast<std::int32_t>(random_u64(5, stream, index++) % kMatrixVocabulary);
      };
      sample.inputs.push_back(token());
      const bool ignored = random_u64(5, stream, index++) % 7 == 0 || t >= sample.valid_tokens;
      sample.targets.push_back(ignored ? -1 : token());
      batch.valid_tokens += sample.targets.back() >= 0 ? 1 : 0;
    }
  }
  return batch;
}

using TensorValues = std::map<std::string, std::vector<float>>;

struct MatrixResult {
  double loss = 0;
  double validation_loss = 0;
  double gradient_norm = 0;
  std::vector<double> losses;  ///< of all steps
  TensorValues gradients;      ///< of the first step; local devices only
  TensorValues parameters;     ///< after the last step; local devices only
};

/// The fp32 values of a parameter, from the thread of the device that holds it.
inline std::vector<float> master_of(runtime::DeviceContext& context,
                                    const model::StoredParameter& parameter) {
  std::vector<float> values(parameter.weight.size());
  context.store->read_master(parameter, 0, values);
  return values;
}

inline TensorValues collect(train::Session& session, bool gradients) {
  TensorValues values;
  std::mutex mutex;
  session.each_device([&](runtime::DeviceContext& context) {
    for (const model::StoredParameter& parameter : context.store->parameters()) {
      std::vector<float> host(parameter.weight.size());
      if (gradients) {
        context.device->download(parameter.gradient, host.data());
      } else {
        host = master_of(context, parameter);
      }
      const std::scoped_lock lock(mutex);
      values[session.table().entries()[parameter.index].name] = std::move(host);
    }
  });
  return values;
}

inline MatrixResult run_matrix_config(const config::RunConfig& config,
                                      const comm::ProcessEnvironment& processes) {
  // Slower for the deeper model, which amplifies what the order of sums differs by from step to step.
  const double learning_rate = config.model.layers > MatrixCase{}.layers ? 1e-3 : 1e-2;
  const auto batch = [&](int step) {
    return matrix_batch(config.training.microbatches, step, config.data.sequence_length);
  };
  train::Session session(config, processes);
  session.initialise();
  MatrixResult result;
  result.validation_loss = session.evaluate(batch(0));
  for (int step = 0; step < kMatrixSteps; ++step) {
    const train::StepResult done =
        session.train_step(batch(step), {.learning_rate = learning_rate, .update = step + 1});
    result.losses.push_back(done.loss);
    if (step == 0) {
      result.loss = done.loss;
      result.gradient_norm = done.gradient_norm;
      result.gradients = collect(session, true);
    }
  }
  result.parameters = collect(session, false);
  return result;
}

inline MatrixResult run_matrix_case(const MatrixCase& c, const comm::ProcessEnvironment& processes) {
  return run_matrix_config(matrix_config(c), processes);
}

/// Everything in which `got` differs from `reference`, empty where they agree: to the bit, or within the
/// stated bounds. `got` may hold a part of the tensors (those of the local devices).
inline std::vector<std::string> compare(const MatrixResult& got, const MatrixResult& reference, bool bitwise,
                                        double tolerance = 1e-5) {
  std::vector<std::string> problems;
  const auto scalar = [&](const char* what, double a, double b) {
    const bool equal = bitwise ? a == b : std::abs(a - b) <= tolerance * std::abs(b);
    if (!equal) problems.push_back(fmt::format("{}: {:.17g}, reference {:.17g}", what, a, b));
  };
  scalar("loss", got.loss, reference.loss);
  scalar("validation loss", got.validation_loss, reference.validation_loss);
  scalar("gradient norm", got.gradient_norm, reference.gradient_norm);
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    scalar(fmt::format("loss of step {}", i).c_str(), got.losses.at(i), reference.losses[i]);
  }
  // Gradients by their largest difference against the largest value, parameters by norms.
  const auto tensors = [&](const char* what, const TensorValues& a, const TensorValues& b, bool by_norm) {
    if (a.empty()) problems.push_back(fmt::format("no {} at all", what));
    for (const auto& [name, values] : a) {
      const std::vector<float>& expected = b.at(name);
      if (bitwise) {
        if (std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)) != 0) {
          problems.push_back(fmt::format("{} of {} is not equal to the bit", what, name));
        }
        continue;
      }
      double difference = 0;
      double scale = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double d = std::abs(double{values[i]} - expected[i]);
        const double r = std::abs(double{expected[i]});
        difference = by_norm ? difference + d * d : std::max(difference, std::isnan(d) ? INFINITY : d);
        scale = by_norm ? scale + r * r : std::max(scale, r);
      }
      if (by_norm) difference = std::sqrt(difference), scale = std::sqrt(scale);
      if (!(difference <= tolerance * scale)) {
        problems.push_back(
            fmt::format("{} of {} differs by {:.3g} of {:.3g}", what, name, difference, scale));
      }
    }
  };
  tensors("gradient", got.gradients, reference.gradients, false);
  tensors("parameter", got.parameters, reference.parameters, true);
  return problems;
}

/// Reference runs, made once each: the plain run (one device, no slices), and the run on one device with the
/// same slices, which every schedule of those slices must equal to the bit.
class MatrixReferences {
 public:
  const MatrixResult& plain(const MatrixCase& c) {
    return get({schedule::Kind::kGpipe, 1, 1, c.microbatches, 2, c.tied, c.dtype, "none", 1, c.layers});
  }
  const MatrixResult& same_slices(const MatrixCase& c) {
    const bool sliced = schedule::is_sliced(c.kind);
    return get({sliced ? schedule::Kind::kTeraPipe : schedule::Kind::kGpipe, 1, c.slices, c.microbatches, 2,
                c.tied, c.dtype, "none", 1, c.layers});
  }

 private:
  const MatrixResult& get(const MatrixCase& c) {
    const auto [it, added] = results_.try_emplace(c.name());
    if (added) it->second = run_matrix_case(c, {});
    return it->second;
  }
  std::map<std::string, MatrixResult> results_;
};

/// Problems of one case against both references.
inline std::vector<std::string> check_matrix_case(const MatrixCase& c,
                                                  const comm::ProcessEnvironment& processes,
                                                  MatrixReferences& references) {
  const MatrixResult result = run_matrix_case(c, processes);
  std::vector<std::string> problems = compare(result, references.same_slices(c), true);
  if (c.dtype == config::ComputeType::kFp32) {
    for (std::string& problem : compare(result, references.plain(c), false))
      problems.push_back(std::move(problem));
  }
  for (std::string& problem : problems) problem.insert(0, c.name() + ": ");
  return problems;
}

}  // namespace slimpipe::test
