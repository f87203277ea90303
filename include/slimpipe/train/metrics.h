#pragma once
// What a run reports: metrics.jsonl, the progress line, summary.json.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "slimpipe/config/run_config.h"
#include "slimpipe/io/json_lines.h"
#include "slimpipe/train/session.h"

namespace slimpipe::train {

struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  std::int64_t tokens = 0;  ///< trained on so far
  double learning_rate = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double tflops = 0;                 ///< model FLOPs, causal attention counted by half
  double tflops_full_attention = 0;  ///< attention counted whole
  double mfu = 0;                    ///< NaN where the peak is unknown
  double mfu_full_attention = 0;
  std::optional<double> validation_loss;
  StepResult result;
};

/// Cores of this host, whoever may run on them.
[[nodiscard]] int host_cores();
/// Cores that `wanted` threads of the whole run can use at once: no more than there are. `process_cores` are
/// those this process may run on, `host_cores` those of its host; other hosts are taken to be like this one.
[[nodiscard]] int usable_cores(int wanted, int process_cores, int host_cores,
                               const comm::ProcessEnvironment& processes);

/// Turns times into rates. Model FLOPs per token as in model::flops_per_token.
class RateMeter {
 public:
  /// `peak_flops`: FLOP/s of all devices together at the compute type; NaN where unknown.
  RateMeter(const config::RunConfig& config, double peak_flops);
  void fill(StepMetrics& metrics, std::int64_t step_tokens) const;

 private:
  double flops_per_token_;
  double flops_per_token_full_;
  double peak_flops_;
};

[[nodiscard]] io::JsonObject to_json(const StepMetrics& metrics);
/// Cuts a metrics.jsonl off behind the lines of steps up to `step`: a run resumed from there does the others
/// again. Warns of lines that cannot be read, which are left out, and where steps are missing, as all are
/// where there is no such file.
void forget_steps_after(const std::filesystem::path& metrics, std::int64_t step);
/// "step 20/300  loss 2.3123  norm 0.83  lr 9.10e-04  12345 tok/s  412 ms  bubble 12 %  mfu 41 %", and what
/// else happened at the step: skipped, validated.
[[nodiscard]] std::string progress_text(const StepMetrics& metrics);

/// Writes progress to standard output: one line that is rewritten on a terminal, plain lines elsewhere. Lines
/// of the log end the line that is being rewritten.
class ProgressLine {
 public:
  /// `launched`: mpirun gives its processes a terminal of its own whatever its output is, so the terminal it
  /// shows is not believed.
  ProgressLine(bool enabled, bool launched, std::int64_t every);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const StepMetrics& metrics);
  /// A line of its own that stays, in the log files of all processes too.
  void note(const std::string& text);

 private:
  void rewrite(std::string text, bool stays);
  void end_line();
  const bool enabled_;
  const bool terminal_;
  const std::int64_t every_;
  std::mutex mutex_;  ///< guards what follows: any thread may log
  bool line_open_ = false;
};

}  // namespace slimpipe::train
