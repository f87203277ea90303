#include <memory>

#include "slimpipe/core/check.h"

#include "app/bench/benchmarks.h"
#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {
namespace {

using Options = std::shared_ptr<bench::BenchOptions>;
using Benchmark = void (*)(const bench::BenchOptions&);

void check_sizes(const bench::BenchOptions& options) {
  if (options.head_size % 8 != 0) {
    throw_input_error("--head-size {}: expected a multiple of 8", options.head_size);
  }
  if (options.hidden % options.head_size != 0) {
    throw_input_error("--hidden {}: expected a multiple of the head size {}", options.hidden,
                      options.head_size);
  }
  if (options.sequence_length % 8 != 0) {
    throw_input_error("--sequence-length {}: expected a multiple of 8", options.sequence_length);
  }
  if (options.sequence_length % options.slices != 0) {
    throw_input_error("--slices {}: expected a divisor of --sequence-length {}", options.slices,
                      options.sequence_length);
  }
}

constexpr const char* kHowToRead =
    "All figures of a benchmark are of one run, on pinned cores; compare ratios, not machines.";

constexpr const char* kKernelFigures =
    "Rates are of the median of processor time, the peak is the best of 5 short loops by wall time.";

struct Description {
  const char* name;
  const char* what;
  const char* figures;  ///< what each of them is over the repeats, in sentences
  const char* example;  ///< options
};

Options defaults(const bench::BenchOptions& options = {}) {
  return std::make_shared<bench::BenchOptions>(options);
}

/// With the options that every benchmark uses; the others are added to those that use them, so that an option
/// without an effect is refused.
CLI::App* add_benchmark(CLI::App& command, Action& action, const Options& options, const Description& about,
                        Benchmark benchmark) {
  CLI::App* sub = command.add_subcommand(about.name, about.what);
  sub->footer(std::string(kHowToRead) + "\n" + about.figures + "\nExample:\n  slimpipe bench " + about.name +
              " " + about.example);
  sub->add_option("--repeats", options->repeats, "Measurements of each figure that is a median")
      ->check(integer_in(1, 1000))
      ->capture_default_str();
  sub->add_option("--sequence-length", options->sequence_length, "Tokens of the sequence, a multiple of 8")
      ->check(integer_in(8, 1 << 24))
      ->capture_default_str();
  sub->callback([options, benchmark, &action] {
    action = [options, benchmark] {
      check_sizes(*options);
      benchmark(*options);
      return 0;
    };
  });
  return sub;
}

void add_dtype(CLI::App& benchmark, const Options& options) {
  benchmark
      .add_option_function<std::string>(
          "--dtype",
          [options](const std::string& name) {
            options->dtypes = {name == "fp32" ? DType::kF32 : DType::kBF16};
          },
          "Only this compute type: fp32 or bf16")
      ->check(one_of({"fp32", "bf16"}));
}

void add_hidden(CLI::App& benchmark, const Options& options) {
  benchmark.add_option("--hidden", options->hidden, "Hidden size, a multiple of the head size")
      ->check(integer_in(8, 1 << 16))
      ->capture_default_str();
}

/// The sizes of a model.
void add_model(CLI::App& benchmark, const Options& options, const char* layers) {
  add_hidden(benchmark, options);
  benchmark.add_option("--head-size", options->head_size, "Head size, a multiple of 8")
      ->check(integer_in(8, 256))
      ->capture_default_str();
  benchmark.add_option("--layers", options->layers, layers)
      ->check(integer_in(1, 1024))
      ->capture_default_str();
}

void add_slices(CLI::App& benchmark, const Options& options) {
  benchmark.add_option("--slices", options->slices, "Slices of the sequence, a divisor of its length")
      ->check(integer_in(1, 1 << 20))
      ->capture_default_str();
}

void add_step_options(CLI::App& step, const Options& options) {
  step.add_option("--vocabulary", options->vocabulary, "Tokens of the vocabulary; 257: bytes, 32000: Llama's")
      ->check(integer_in(2, 1 << 20))
      ->capture_default_str();
  add_slices(step, options);
  step.add_option("--recompute", options->recompute, "none or selective, as memory.recompute")
      ->check(one_of({"none", "selective"}))
      ->capture_default_str();
  step.add_option("--format", options->format, "text or json (one line a compute type)")
      ->check(one_of({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("bench", "Measure what is reached against what this machine can do");
  command->require_subcommand(1);
  command->footer(std::string(kHowToRead) +
                  " Examples:\n"
                  "  slimpipe bench gemm --repeats 9\n"
                  "  slimpipe bench attention --sequence-length 8192\n"
                  "  slimpipe bench step --sequence-length 8192 --slices 16\n"
                  "  slimpipe bench pipeline --hidden 512\n"
                  "  slimpipe bench exchange --sequence-length 16384");
  Options options = defaults();
  CLI::App* gemm = add_benchmark(*command, action, options,
                                 {.name = "gemm",
                                  .what = "Matrix products of a layer against the multiply-add peak",
                                  .figures = kKernelFigures,
                                  .example = "--repeats 9"},
                                 bench::bench_gemm);
  add_hidden(*gemm, options);
  CLI::App* attention =
      add_benchmark(*command, action, options,
                    {.name = "attention",
                     .what = "Attention kernels against the multiply-add peak and matrix products",
                     .figures = kKernelFigures,
                     .example = "--sequence-length 8192"},
                    bench::bench_attention);
  CLI::App* step = add_benchmark(
      *command, action, options,
      {.name = "step",
       .what = "A training step on one device against the multiply-add peak and matrix products",
       .figures =
           "Rates and ratios are medians: GF/s and ratios by processor time, tokens/s by wall time, the peak "
           "the best of 5 short loops before each step. The peak of memory is the run's.",
       .example = "--sequence-length 8192 --slices 16"},
      bench::bench_step);
  add_model(*step, options, "Decoder layers");
  add_step_options(*step, options);
  for (CLI::App* benchmark : {gemm, attention, step}) add_dtype(*benchmark, options);
  CLI::App* pipeline = add_benchmark(
      *command, action, options,
      {.name = "pipeline",
       .what = "Two devices: slimpipe against 1f1b and one device, and the executor's own time",
       .figures =
           "Times, tokens/s and ratios are medians, by wall time. The bubble is the last step's, the peak of "
           "memory the run's.",
       .example = "--hidden 512"},
      bench::bench_pipeline);
  add_model(*pipeline, options, "Decoder layers, a multiple of 2");
  options = defaults({.repeats = 3, .sequence_length = 8192, .hidden = 256, .slices = 8});
  CLI::App* exchange = add_benchmark(
      *command, action, options,
      {.name = "exchange",
       .what = "Two devices, long sequences: slimpipe with the attention context exchange against 1f1b",
       .figures = "Times, tokens/s, ratios and costs of the exchange are medians, by wall time. The bubble "
                  "is the last "
                  "step's, the peak of memory the run's.",
       .example = "--sequence-length 16384"},
      bench::bench_exchange);
  add_model(*exchange, options, "Decoder layers, a multiple of 2");
  add_slices(*exchange, options);
}

}  // namespace slimpipe::app
