#include <memory>

#include "slimpipe/core/check.h"

#include "app/bench/benchmarks.h"
#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {
namespace {

using Benchmark = void (*)(const bench::BenchOptions&);

void check_sizes(const bench::BenchOptions& options) {
  if (options.hidden % options.head_size != 0 || options.head_size % 8 != 0) {
    throw_input_error("--head-size {}: expected a multiple of 8 that divides --hidden {}", options.head_size,
                      options.hidden);
  }
  if (options.sequence_length % 8 != 0) {
    throw_input_error("--sequence-length {}: expected a multiple of 8", options.sequence_length);
  }
  if (options.layers % 2 != 0) {
    throw_input_error("--layers {}: expected a multiple of 2, so that two devices can share them",
                      options.layers);
  }
}

void add_benchmark(CLI::App& command, Action& action, const std::shared_ptr<bench::BenchOptions>& options,
                   const char* name, const char* what, Benchmark benchmark) {
  CLI::App* sub = command.add_subcommand(name, what);
  sub->add_option("--repeats", options->repeats, "Measurements; medians are printed")
      ->check(integer_in(1, 1000))
      ->capture_default_str();
  sub->add_option("--hidden", options->hidden, "Hidden size")
      ->check(integer_in(8, 1 << 16))
      ->capture_default_str();
  sub->add_option("--sequence-length", options->sequence_length, "Tokens of the sequence, a multiple of 8")
      ->check(integer_in(8, 1 << 24))
      ->capture_default_str();
  sub->add_option("--head-size", options->head_size, "Head size")
      ->check(integer_in(8, 256))
      ->capture_default_str();
  sub->add_option("--layers", options->layers, "Decoder layers, a multiple of 2")
      ->check(integer_in(2, 1024))
      ->capture_default_str();
  sub->callback([options, benchmark, &action] {
    action = [options, benchmark] {
      check_sizes(*options);
      benchmark(*options);
      return 0;
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("bench", "Measure what is reached against what this machine can do");
  command->require_subcommand(1);
  command->footer("Every figure is a median within one run, on pinned cores; compare ratios, not machines.");
  auto options = std::make_shared<bench::BenchOptions>();
  add_benchmark(*command, action, options, "gemm", "Matrix products of a layer against the multiply-add peak",
                bench::bench_gemm);
  add_benchmark(*command, action, options, "attention", "Attention kernels against the multiply-add peak",
                bench::bench_attention);
  add_benchmark(*command, action, options, "step",
                "A training step on one device against its matrix products", bench::bench_step);
  add_benchmark(*command, action, options, "pipeline", "Two devices: slimpipe against 1f1b and one device",
                bench::bench_pipeline);
}

}  // namespace slimpipe::app
