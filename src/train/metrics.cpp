#include "slimpipe/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"
#include "slimpipe/core/terminal.h"
#include "slimpipe/io/files.h"
#include "slimpipe/model/parameters.h"

namespace slimpipe::train {

RateMeter::RateMeter(const config::RunConfig& config, double peak_flops)
    : flops_per_token_(model::flops_per_token(config.model, config.data.sequence_length, false)),
      flops_per_token_full_(model::flops_per_token(config.model, config.data.sequence_length, true)),
      peak_flops_(peak_flops) {}

void RateMeter::fill(StepMetrics& metrics, std::int64_t step_tokens) const {
  metrics.tokens_per_s = metrics.step_ms > 0 ? static_cast<double>(step_tokens) / metrics.step_ms * 1e3 : 0;
  metrics.tflops = metrics.tokens_per_s * flops_per_token_ / 1e12;
  metrics.tflops_full_attention = metrics.tokens_per_s * flops_per_token_full_ / 1e12;
  metrics.mfu = metrics.tflops * 1e12 / peak_flops_;
  metrics.mfu_full_attention = metrics.tflops_full_attention * 1e12 / peak_flops_;
}

int host_cores() {
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

int usable_cores(int wanted, int process_cores, int host_cores, const comm::ProcessEnvironment& processes) {
  // Processes that are not bound to cores share those of the host.
  const int of_host = std::min(host_cores, process_cores * processes.local_size);
  const int hosts = std::max(1, processes.size / std::max(1, processes.local_size));
  return std::clamp(of_host * hosts, 1, std::max(1, wanted));
}

namespace {

/// How much of the exchange's messages went while the device computed, of the time they took.
double exchange_overlap(const runtime::ExecutionTimes& times) {
  return times.exchange_send_ms > 0 ? times.exchange_send_hidden_ms / times.exchange_send_ms : 0;
}

}  // namespace

io::JsonObject to_json(const StepMetrics& metrics) {
  const StepResult& result = metrics.result;
  std::vector<io::JsonTable> devices;
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const DeviceReport& report = result.devices[d];
    io::JsonTable table = {{"device", static_cast<double>(d)},
                           {"compute_ms", report.times.compute_ms},
                           {"wait_ms", report.times.wait_ms},
                           {"send_ms", report.times.send_ms},
                           {"send_hidden_ms", report.times.send_hidden_ms},
                           {"exchange_bytes", report.times.exchange_bytes},
                           {"exchange_wait_ms", report.times.exchange_wait_ms},
                           {"exchange_overlap", exchange_overlap(report.times)},
                           {"wall_ms", report.times.wall_ms},
                           {"peak_bytes", report.total_peak_bytes}};
    for (std::size_t s = 0; s < device::kNumScopes; ++s) {
      table.emplace_back(fmt::format("peak_bytes_{}", device::name_of(static_cast<device::Scope>(s))),
                         report.peak_bytes[s]);
    }
    devices.push_back(std::move(table));
  }
  io::JsonObject object = {{"step", metrics.step},
                           {"loss", result.loss},
                           {"grad_norm", result.gradient_norm},
                           {"lr", metrics.learning_rate},
                           {"tokens", metrics.tokens},
                           {"step_ms", metrics.step_ms},
                           {"tokens_per_s", metrics.tokens_per_s},
                           {"tflops", metrics.tflops},
                           {"tflops_full_attention", metrics.tflops_full_attention},
                           {"mfu", metrics.mfu},
                           {"mfu_full_attention", metrics.mfu_full_attention},
                           {"bubble", result.bubble},
                           {"skipped", std::int64_t{result.skipped}}};
  if (result.skipped) object.emplace_back("skip_cause", result.skip_cause);
  if (metrics.validation_loss) object.emplace_back("validation_loss", *metrics.validation_loss);
  object.emplace_back("devices", std::move(devices));
  return object;
}

void forget_steps_after(const std::filesystem::path& metrics, std::int64_t step) {
  std::ifstream stream(metrics, std::ios::binary);
  std::string kept;
  std::int64_t kept_lines = 0;
  std::string line;
  std::int64_t unreadable = 0;
  bool changed = false;
  while (std::getline(stream, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const auto number = json.is_object() ? json.find("step") : json.end();
    const bool finished = !stream.eof();  // the last line of a killed run may be cut short
    const bool readable = finished && json.is_object() && number != json.end() && number->is_number_integer();
    if (readable && *number <= step) {
      kept += line + '\n';
      ++kept_lines;
    } else {
      changed = true;
      if (!readable) ++unreadable;
    }
  }
  stream.close();
  if (unreadable > 0)
    log::warning("{}: {} lines that are no steps are left out", metrics.string(), unreadable);
  if (kept_lines < step) {
    log::warning("{}: it has {} of the {} steps before this one; training does not need them",
                 metrics.string(), kept_lines, step);
  }
  if (changed) io::write_text_atomically(metrics, kept);
}

std::string progress_text(const StepMetrics& metrics) {
  const StepResult& result = metrics.result;
  std::string text =
      fmt::format("step {}/{}  loss {:.4f}  norm {:.3g}  lr {:.2e}  {:.0f} tok/s  {:.0f} ms  bubble {:.0f} %",
                  metrics.step, metrics.total_steps, result.loss, std::abs(result.gradient_norm),
                  metrics.learning_rate, metrics.tokens_per_s, metrics.step_ms, result.bubble * 100);
  text += std::isfinite(metrics.mfu) ? fmt::format("  mfu {:.0f} %", metrics.mfu * 100) : "  mfu n/a";
  if (result.skipped) text += fmt::format("  SKIPPED: {} is not finite", result.skip_cause);
  if (metrics.validation_loss) text += fmt::format("  validation loss {:.4f}", *metrics.validation_loss);
  return text;
}

ProgressLine::ProgressLine(bool enabled, bool launched, std::int64_t every)
    : enabled_(enabled),
      terminal_(enabled && !launched && takes_escape_sequences(STDOUT_FILENO)),
      every_(every) {
  if (!terminal_) return;
  log::before_terminal_line([this] {
    const std::scoped_lock lock(mutex_);
    end_line();
  });
}

ProgressLine::~ProgressLine() {
  if (!terminal_) return;
  log::before_terminal_line({});
  end_line();
}

void ProgressLine::show(const StepMetrics& metrics) {
  if (!enabled_) return;
  const bool stays = metrics.validation_loss || metrics.result.skipped || metrics.step == metrics.total_steps;
  if (!stays && metrics.step % every_ != 0 && !terminal_) return;
  const std::string text = progress_text(metrics);
  if (terminal_) {
    rewrite(text, stays);
  } else {
    std::fprintf(stdout, "%s\n", text.c_str());
    std::fflush(stdout);
  }
}

void ProgressLine::rewrite(std::string text, bool stays) {
  constexpr const char* kClearLine = "\r\033[K";
  constexpr int kUsualColumns = 80;
  const std::scoped_lock lock(mutex_);
  if (!stays) {
    // A line that the terminal wraps cannot be rewritten: only its last row would be cleared.
    const int columns = terminal_columns(STDOUT_FILENO);
    text.resize(std::min(text.size(), static_cast<std::size_t>((columns > 0 ? columns : kUsualColumns) - 1)));
  }
  std::fprintf(stdout, "%s%s", kClearLine, text.c_str());
  std::fflush(stdout);
  line_open_ = true;
  if (stays) end_line();
}

void ProgressLine::note(const std::string& text) {
  log::write_to_files(log::Level::kInfo, text);
  if (!enabled_) return;
  const std::scoped_lock lock(mutex_);
  end_line();
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

void ProgressLine::end_line() {
  if (!line_open_) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
  line_open_ = false;
}

}  // namespace slimpipe::train
