// Rows of the field table: everything but the model (fields_model.cpp).

#include <limits>

#include "config/field_rows.h"

namespace slimpipe::config {
namespace {

constexpr std::int64_t kMaxDevices = 1 << 20;
constexpr std::int64_t kMaxUnits = 1 << 20;  // microbatches or slices of a step
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

}  // namespace

std::vector<Field> data_rows() {
  return {
      text(SLIMPIPE_FIELD(data.train),
           "token file to train on, made by `slimpipe data prepare`; relative to the folder the program is "
           "started in")
          .required_for_training(),
      text(SLIMPIPE_FIELD(data.validation),
           "token file to validate on; empty: the tail of data.train given by validation_fraction"),
      number(SLIMPIPE_FIELD(data.validation_fraction), {.low = 0, .high = 0.5},
             "share of data.train, at its end, that is kept for validation where data.validation is empty"),
      integer(SLIMPIPE_FIELD(data.sequence_length), {1, kMaxTokens},
              "tokens of one sample, which is one microbatch")
          .required(),
      integer(SLIMPIPE_FIELD(data.shuffle_window), {1, kMaxTokens},
              "samples that are shuffled among themselves; 1: the order of the file"),
  };
}

std::vector<Field> layout_rows() {
  return {
      integer(SLIMPIPE_FIELD(parallel.tensor), {1, kMaxDevices}, "devices that share each layer's weights")
          .only({"1"}),
      integer(SLIMPIPE_FIELD(parallel.context), {1, kMaxDevices}, "devices that share each slice's tokens")
          .only({"1"}),
      integer(SLIMPIPE_FIELD(parallel.expert), {1, kMaxDevices}, "devices that share each layer's experts")
          .only({"1"}),
      integer(SLIMPIPE_FIELD(parallel.data), {1, kMaxDevices}, "model replicas that share the microbatches")
          .only({"1"}),
      integer(SLIMPIPE_FIELD(parallel.pipeline), {1, kMaxDevices}, "devices that share the layers"),
      integer(SLIMPIPE_FIELD(parallel.virtual_stages), {1, kMaxUnits},
              "pieces of the model on each pipeline device; 2 or more for interleaved-1f1b, 2 for zb-v and "
              "v-half, any number for slimpipe and slimpipe-zb, 1 for the others"),

      enumeration(SLIMPIPE_FIELD(schedule.kind), schedule::kind_names(),
                  "order of the forwards and backwards of a step; terapipe, slimpipe and slimpipe-zb cut "
                  "sequences into "
                  "slices, the others take whole ones"),
      integer(SLIMPIPE_FIELD(schedule.slices), {1, kMaxUnits},
              "equal parts a sequence is cut into; a divisor of data.sequence_length, 1 for kinds that take "
              "whole sequences; at least pipeline where virtual_stages is above 1"),
      integer(SLIMPIPE_FIELD(schedule.warmup_slope), {1, kMaxUnits},
              "forwards by which the warm-up grows from each device to the one before it; for slimpipe and "
              "slimpipe-zb"),
      enumeration(SLIMPIPE_FIELD(schedule.exchange), schedule::exchange_names(),
                  "how devices that work on different slices even out their attention; pairwise: the longest "
                  "prefix with the shortest, in whole slices; balanced: any device with any, idle ones too; "
                  "for slimpipe with warmup_slope 2 and terapipe"),
      flag(SLIMPIPE_FIELD(schedule.early_exchange),
           "send K and V to helpers while the layer before is computed, not when their layer begins"),
      choice(SLIMPIPE_FIELD(schedule.vocabulary), {"last_stage", "sharded"},
             "where the output layer is computed: on the last stage, or sharded over all pipeline devices")
          .only({"last_stage"}),

      choice(SLIMPIPE_FIELD(memory.recompute), {"none", "selective", "full"},
             "activations that are computed again in the backward pass instead of saved; selective: the "
             "outputs of the norms and of the feed-forward gate, which takes a few percent of the time")
          .only({"none", "selective"}),
      number(SLIMPIPE_FIELD(memory.offload), {.low = 0, .high = 1},
             "share of the saved activations that waits in host memory")
          .only({"0"})
          .without({"auto"}),
      bytes(SLIMPIPE_FIELD(memory.limit), "bytes a device may allocate; 0: no limit"),
  };
}

std::vector<Field> training_rows() {
  return {
      integer(SLIMPIPE_FIELD(training.steps), {1, kMaxTokens}, "optimizer steps of the run")
          .required_for_training(),
      integer(SLIMPIPE_FIELD(training.microbatches), {1, kMaxUnits}, "sequences of one step"),
      enumeration(SLIMPIPE_FIELD(training.dtype), {"fp32", "bf16"},
                  "compute type; master weights, gradients and sums are fp32 with both"),
      choice(SLIMPIPE_FIELD(training.optimizer), {"adamw", "sgd"}, "update rule").only({"adamw"}),
      number(SLIMPIPE_FIELD(training.lr), {.low = 0}, "peak learning rate"),
      number(SLIMPIPE_FIELD(training.min_lr_ratio), {.low = 0, .high = 1},
             "last learning rate as a share of the peak; for linear, cosine, wsd"),
      enumeration(SLIMPIPE_FIELD(training.lr_schedule), {"constant", "linear", "cosine", "wsd"},
                  "course of the learning rate after the warm-up; wsd: constant, then a final linear decay"),
      integer(SLIMPIPE_FIELD(training.warmup_steps), {0, kMaxTokens},
              "steps in which the learning rate rises to its peak, at most training.steps"),
      integer(SLIMPIPE_FIELD(training.decay_steps), {0, kMaxTokens},
              "steps of the final decay of wsd; 0: a tenth of training.steps"),
      number(SLIMPIPE_FIELD(training.beta1), {.low = 0, .high = 1, .high_open = true},
             "decay of the gradient's running mean"),
      number(SLIMPIPE_FIELD(training.beta2), {.low = 0, .high = 1, .high_open = true},
             "decay of the squared gradient's running mean"),
      number(SLIMPIPE_FIELD(training.epsilon), {.low = 1e-30, .high = 1},
             "added to the root of the squared gradient's mean"),
      number(SLIMPIPE_FIELD(training.weight_decay), {.low = 0, .high = 100},
             "decoupled decay, applied to matrices only"),
      number(SLIMPIPE_FIELD(training.clip), {.low = 0}, "largest global gradient norm; 0: no clipping"),
      unsigned_integer(SLIMPIPE_FIELD(training.seed), "seed of the initial weights and of the sample order"),
      integer(SLIMPIPE_FIELD(training.validation_every), {0, kMaxTokens},
              "steps between validations; there is one before the first step and one after the last besides, "
              "where there "
              "is validation data; 0: only those"),
      integer(SLIMPIPE_FIELD(training.validation_samples), {1, kMaxTokens},
              "sequences of one validation, at most"),
      integer(SLIMPIPE_FIELD(training.max_skipped_steps), {1, kMaxInt},
              "steps in a row with a non-finite loss or gradient that end the run"),
  };
}

std::vector<Field> operation_rows() {
  return {
      choice(SLIMPIPE_FIELD(device.backend), {"auto", "cpu", "cuda", "timed"},
             "what computes; auto: a GPU where this build and this machine have one, else the CPU; timed: "
             "computes nothing and waits for as long as it would take")
          .only({"auto", "cpu"}),
      integer(SLIMPIPE_FIELD(device.per_process), {0, kMaxDevices},
              "devices one process drives, a divisor of their number; 0: shared evenly by the processes"),
      integer(SLIMPIPE_FIELD(device.threads), {1, 256},
              "CPU threads a device computes with; matrix products use one, so that sums do not depend on "
              "it. MFU "
              "is counted against the cores of all"),

      integer(SLIMPIPE_FIELD(checkpoint.every), {0, kMaxTokens},
              "steps between checkpoints; 0: only at the end"),
      integer(SLIMPIPE_FIELD(checkpoint.keep), {1, kMaxInt}, "newest checkpoints that are kept"),
      flag(SLIMPIPE_FIELD(checkpoint.at_end), "write a checkpoint after the last step"),

      choice(SLIMPIPE_FIELD(log.level), {"info", "warning", "error"}, "least severity that is logged"),
      integer(SLIMPIPE_FIELD(log.every), {1, kMaxTokens}, "steps between progress lines"),
      flag(SLIMPIPE_FIELD(log.trace), "write a Chrome/Perfetto trace of one step as it was executed"),
      integer(SLIMPIPE_FIELD(log.trace_step), {1, kMaxTokens}, "the step that is traced, counted from 1"),
      number(SLIMPIPE_FIELD(log.watchdog_seconds), {.low = 0, .high = 1e6},
             "seconds without any progress after which every device's action is printed, and who is missing "
             "where processes wait for each other; ten times as long with all devices only waiting ends the "
             "run; 0: nothing is printed, and 600 s end it"),
  };
}

}  // namespace slimpipe::config
