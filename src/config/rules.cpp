#include "config/rules.h"

#include <algorithm>
#include <fmt/core.h>

#include "slimpipe/core/counted.h"
#include "slimpipe/schedule/exchange.h"

namespace slimpipe::config {
namespace {

using Texts = std::vector<std::string>;

/// "4 or 6": the divisors of `total` next to `wanted`, below and above.
std::string divisors_near(std::int64_t total, std::int64_t wanted) {
  constexpr std::int64_t kSearch = 1 << 21;  // above that only `total` itself is offered
  std::int64_t below = std::min(wanted, total);
  while (total % below != 0) --below;
  std::int64_t above = wanted;
  const std::int64_t end = std::min(total, wanted + kSearch);
  while (above < end && total % above != 0) ++above;
  if (above >= end) above = total;
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

Texts layers_over_stages(const RunConfig& c) {
  const std::int64_t stages = std::int64_t{c.parallel.pipeline} * c.parallel.virtual_stages;
  if (c.model.layers % stages == 0) return {};
  return {
      fmt::format("{} layers do not divide into {} equal stages (pipeline {} x virtual_stages {}); "
                  "use {} stages, or change the layers",
                  c.model.layers, stages, c.parallel.pipeline, c.parallel.virtual_stages,
                  divisors_near(c.model.layers, stages))};
}

Texts sequence_over_slices(const RunConfig& c) {
  const std::int64_t tokens = c.data.sequence_length;
  if (tokens == 0 || tokens % c.schedule.slices == 0) return {};
  return {fmt::format("{} tokens do not divide into {} equal slices; use {} slices, or change the length",
                      tokens, c.schedule.slices, divisors_near(tokens, c.schedule.slices))};
}

Texts heads_over_kv_heads(const RunConfig& c) {
  if (c.model.kv_heads == 0 || c.model.heads % c.model.kv_heads == 0) return {};
  return {fmt::format("{} query heads are not a multiple of {} KV heads; use {} KV heads", c.model.heads,
                      c.model.kv_heads, divisors_near(c.model.heads, c.model.kv_heads))};
}

Texts size_of_heads(const RunConfig& c) {
  constexpr std::int64_t kGrain = 8;
  constexpr std::int64_t kLargest = 256;
  const ModelConfig& m = c.model;
  if (m.heads == 0 || m.hidden == 0) return {};
  if (m.head_size == 0)
    return {fmt::format("hidden {} is not a multiple of {} heads; set model.head_size, or use {} heads",
                        m.hidden, m.heads, divisors_near(m.hidden, m.heads))};
  if (m.head_size % kGrain == 0 && m.head_size <= kLargest) return {};
  return {fmt::format("head size {} (hidden {}, {} heads): expected a multiple of {}, at most {}",
                      m.head_size, m.hidden, m.heads, kGrain, kLargest)};
}

Texts warmup_within_steps(const RunConfig& c) {
  const TrainingConfig& t = c.training;
  if (t.steps == 0 || t.warmup_steps <= t.steps) return {};
  return {fmt::format("{} warm-up steps are more than the run's {} steps", t.warmup_steps, t.steps)};
}

Texts decay_of_wsd(const RunConfig& c) {
  const TrainingConfig& t = c.training;
  if (t.decay_steps == 0) return {};
  if (t.lr_schedule != LrSchedule::kWsd)
    return {fmt::format("{} decay steps need lr_schedule wsd; set decay_steps to 0 for the other schedules",
                        t.decay_steps)};
  if (t.steps == 0 || t.warmup_steps > t.steps || t.decay_steps <= t.steps - t.warmup_steps) return {};
  return {fmt::format("{} warm-up and {} decay steps are more than the run's {} steps", t.warmup_steps,
                      t.decay_steps, t.steps)};
}

Texts rope_factor(const RunConfig& c) {
  const RopeConfig& rope = c.model.rope;
  if (rope.kind != RopeKind::kPlain || rope.factor == 1) return {};
  return {
      fmt::format("factor {} has no effect on a plain rotary embedding; choose linear, ntk, yarn or llama3 "
                  "as kind, or set factor to 1",
                  rope.factor)};
}

Texts rope_yarn_range(const RunConfig& c) {
  const RopeConfig& rope = c.model.rope;
  if (rope.kind != RopeKind::kYarn || rope.beta_fast > rope.beta_slow) return {};
  return {fmt::format("beta_fast {} must be above beta_slow {}", rope.beta_fast, rope.beta_slow)};
}

Texts rope_llama3_range(const RunConfig& c) {
  const RopeConfig& rope = c.model.rope;
  if (rope.kind != RopeKind::kLlama3 || rope.high_frequency_factor > rope.low_frequency_factor) return {};
  return {fmt::format("high_frequency_factor {} must be above low_frequency_factor {}",
                      rope.high_frequency_factor, rope.low_frequency_factor)};
}

Texts devices_of_processes(const RunConfig& c) {
  const ParallelConfig& p = c.parallel;
  const std::int64_t devices = std::int64_t{p.tensor} * p.context * p.data * p.pipeline;
  const int share = c.device.per_process;
  if (share == 0 || devices % share == 0) return {};
  return {fmt::format("{} cannot be divided into processes of {} devices; use {}", counted(devices, "device"),
                      share, divisors_near(devices, share))};
}

Texts traced_step(const RunConfig& c) {
  if (!c.log.trace || c.training.steps == 0 || c.log.trace_step <= c.training.steps) return {};
  return {
      fmt::format("step {} is to be traced, but the run has {} steps", c.log.trace_step, c.training.steps)};
}

Texts schedule_problems(const RunConfig& c) {
  return schedule::problems({.kind = c.schedule.kind,
                             .pipeline = c.parallel.pipeline,
                             .virtual_stages = c.parallel.virtual_stages,
                             .microbatches = c.training.microbatches,
                             .slices = c.schedule.slices,
                             .warmup_slope = c.schedule.warmup_slope},
                            c.model.layers);
}

Texts exchange_in_lockstep(const RunConfig& c) {
  if (c.schedule.exchange == schedule::Exchange::kNone) return {};
  return schedule::exchange_problems({.kind = c.schedule.kind, .warmup_slope = c.schedule.warmup_slope});
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {{"parallel.pipeline", "parallel.virtual_stages", "model.layers"}, layers_over_stages},
      {{"schedule.slices", "data.sequence_length"}, sequence_over_slices},
      {{"model.kv_heads", "model.heads"}, heads_over_kv_heads},
      {{"model.head_size", "model.heads", "model.hidden"}, size_of_heads},
      {{"model.rope.factor", "model.rope.kind"}, rope_factor},
      {{"model.rope.beta_fast", "model.rope.beta_slow", "model.rope.kind"}, rope_yarn_range},
      {{"model.rope.high_frequency_factor", "model.rope.low_frequency_factor", "model.rope.kind"},
       rope_llama3_range},
      {{"schedule.slices", "schedule.kind", "schedule.warmup_slope", "parallel.pipeline",
        "parallel.virtual_stages", "training.microbatches"},
       schedule_problems},
      {{"schedule.exchange", "schedule.kind", "schedule.warmup_slope"}, exchange_in_lockstep},
      {{"training.warmup_steps", "training.steps"}, warmup_within_steps},
      {{"training.decay_steps", "training.lr_schedule", "training.warmup_steps", "training.steps"},
       decay_of_wsd},
      {{"device.per_process", "parallel.tensor", "parallel.context", "parallel.data", "parallel.pipeline"},
       devices_of_processes},
      {{"log.trace_step", "training.steps", "log.trace"}, traced_step},
  };
  return all;
}

}  // namespace slimpipe::config
