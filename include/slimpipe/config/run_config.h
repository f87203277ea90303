#pragma once
// What a run is: the resolved configuration. Every field is described once, in the field table
// (src/config/fields.cpp), which drives YAML, --set, validation, `config show` and the reference.

#include <cstdint>
#include <string>

#include "slimpipe/schedule/schedule.h"

namespace slimpipe::config {

enum class RopeKind : std::uint8_t { kPlain, kLinear, kNtk, kYarn, kLlama3 };
enum class ComputeType : std::uint8_t { kFp32, kBf16 };
enum class LrSchedule : std::uint8_t { kConstant, kLinear, kCosine, kWsd };

/// Rotary position embedding; model/rope.h has the formula of each kind.
struct RopeConfig {
  RopeKind kind = RopeKind::kPlain;
  double theta = 10000;
  double factor = 1;                     ///< context extension factor; linear, ntk, yarn, llama3
  std::int64_t original_context = 8192;  ///< context of the original model; yarn, llama3
  double beta_fast = 32;                 ///< yarn
  double beta_slow = 1;                  ///< yarn
  double low_frequency_factor = 1;       ///< llama3
  double high_frequency_factor = 4;      ///< llama3
};

struct ModelConfig {
  std::string preset;  ///< name of the preset the sizes came from, or empty
  std::int64_t layers = 0;
  std::int64_t hidden = 0;      ///< H
  std::int64_t heads = 0;       ///< N
  std::int64_t kv_heads = 0;    ///< K; 0: as heads
  std::int64_t head_size = 0;   ///< D; 0: hidden / heads
  std::int64_t ffn = 0;         ///< F
  std::int64_t vocabulary = 0;  ///< V
  bool tied_embeddings = false;
  double norm_epsilon = 1e-5;
  double init_std = 0.02;
  RopeConfig rope;
};

struct DataConfig {
  std::string train;       ///< token file
  std::string validation;  ///< token file, or empty: the tail of `train` by validation_fraction
  double validation_fraction = 0.05;
  std::int64_t sequence_length = 0;    ///< S, tokens of one sample (= one microbatch)
  std::int64_t shuffle_window = 4096;  ///< samples; 1: file order
};

struct ParallelConfig {
  int tensor = 1;
  int context = 1;
  int expert = 1;
  int data = 1;
  int pipeline = 1;
  int virtual_stages = 1;
};

struct ScheduleConfig {
  schedule::Kind kind = schedule::Kind::kSlimPipe;
  int slices = 1;
  int warmup_slope = 2;
  schedule::Exchange exchange = schedule::Exchange::kNone;
  bool early_exchange = true;
  std::string vocabulary = "last_stage";
};

struct MemoryConfig {
  std::string recompute = "none";
  double offload = 0;
  std::int64_t limit = 0;  ///< bytes a device; 0: no limit
};

struct TrainingConfig {
  std::int64_t steps = 0;
  int microbatches = 1;  ///< m, sequences per step
  ComputeType dtype = ComputeType::kFp32;
  std::string optimizer = "adamw";
  double lr = 3e-4;
  double min_lr_ratio = 0.1;
  LrSchedule lr_schedule = LrSchedule::kCosine;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  ///< wsd: length of the final decay; 0: a tenth of steps
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< global gradient norm; 0: no clipping
  std::uint64_t seed = 1;
  std::int64_t validation_every = 0;    ///< steps; 0: only at the end where there is validation data
  std::int64_t validation_samples = 8;  ///< sequences of one validation, at most
  int max_skipped_steps = 5;            ///< non-finite steps in a row that end the run
};

struct DeviceConfig {
  std::string backend = "auto";
  int per_process = 0;  ///< devices a process drives; 0: all devices shared evenly by the processes
  int threads = 1;      ///< CPU threads a device
};

struct CheckpointConfig {
  std::int64_t every = 0;  ///< steps; 0: only at the end
  int keep = 2;
  bool at_end = true;
};

struct LogConfig {
  std::string level = "info";
  std::int64_t every = 1;  ///< steps between progress lines
  bool trace = false;
  std::int64_t trace_step = 3;  ///< 1-based step whose execution is traced
  /// Nothing moves for this long: print what every device does; ten times, all waiting: end the run. 0: print
  /// nothing, end it after 600 s.
  double watchdog_seconds = 60;
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  ParallelConfig parallel;
  ScheduleConfig schedule;
  MemoryConfig memory;
  TrainingConfig training;
  DeviceConfig device;
  CheckpointConfig checkpoint;
  LogConfig log;
};

}  // namespace slimpipe::config
