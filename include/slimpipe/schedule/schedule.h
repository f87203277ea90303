#pragma once
// A schedule is data: for one training step, the ordered list of actions of every device. It is built by
// pure functions, checked, simulated, printed, compiled and executed; nothing about a step is decided
// anywhere else.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimpipe::schedule {

enum class Kind : std::uint8_t { kGpipe, kOneFOneB, kTeraPipe, kSlimPipe };
/// "gpipe", "1f1b", "terapipe", "slimpipe".
[[nodiscard]] std::string_view name_of(Kind kind);
[[nodiscard]] std::optional<Kind> kind_from_name(std::string_view name);
[[nodiscard]] std::vector<std::string> kind_names();
/// Kinds that are known and that this build has no builder for.
[[nodiscard]] std::vector<std::string> unavailable_kind_names();
/// Whether the kind cuts sequences into slices (otherwise slices must be 1).
[[nodiscard]] bool is_sliced(Kind kind);

/// What to build. Symbols as in the SlimPipe paper (arXiv 2504.14519).
struct Spec {
  Kind kind = Kind::kSlimPipe;
  int pipeline = 1;        ///< p, devices
  int virtual_stages = 1;  ///< v, model chunks per device; stage g lives on device g mod p, chunk g div p
  int microbatches = 1;    ///< m per step
  int slices = 1;          ///< n per microbatch
  int warmup_slope = 2;    ///< δ: warm-up forwards grow by δ per device towards the first; SlimPipe only
  bool operator==(const Spec&) const = default;
  [[nodiscard]] int stages() const { return pipeline * virtual_stages; }
};

/// Most forwards of single layers in a step, m·n·layers: keeps a mistyped size from taking the machine's
/// time and memory (this many are built, proved and simulated in about 6 s and 0.6 GB for each of the p·v
/// stages that has one layer; they take a run about 2 GB in each process).
inline constexpr std::int64_t kMaxLayerForwards = std::int64_t{1} << 21;

/// Everything wrong with a spec, a sentence each with the numbers; empty when it can be built, for a model of
/// `layers` layers. 0: one layer a stage.
[[nodiscard]] std::vector<std::string> problems(const Spec& spec, std::int64_t layers = 0);

enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,        ///< for inputs and weights together
  kBackwardInput,   ///< for inputs only (split backward)
  kBackwardWeight,  ///< the deferred weight gradients
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;
  int microbatch = 0;
  int slice = 0;
  int arg = -1;  ///< index into a side table of the schedule, -1 for none
  bool operator==(const Action&) const = default;
};
/// "F0.1.3" = forward of chunk 0, microbatch 1, slice 3; B backward, I for inputs, W for weights.
/// An arg of 0 or more follows as "@arg".
[[nodiscard]] std::string to_string(const Action& action);

struct Schedule {
  Spec spec;
  bool training = true;                      ///< false: forward actions alone
  std::vector<std::vector<int>> stage_of;    ///< [device][chunk] -> stage
  std::vector<std::vector<Action>> devices;  ///< [device] -> actions in order
  bool operator==(const Schedule&) const = default;
  /// The device that holds the stage; throws Error where none does.
  [[nodiscard]] int device_of(int stage) const;
};

/// Builds the training schedule. Throws InputError listing problems(spec) if there are any.
///
/// Forwards take microbatches in order and each one's slices 0..n-1; backwards take microbatches in order
/// and each one's slices n-1..0. A device runs its warm-up forwards, then pairs (forward, backward), then
/// the remaining backwards. Warm-up forwards on device r, at most all m·n·v of them:
///   gpipe, terapipe   all
///   1f1b              p - 1 - r
///   slimpipe          n·v - 1 + δ·(p - 1 - r)
[[nodiscard]] Schedule build(const Spec& spec);
/// The forward actions alone, in an order that needs no warm-up: for validation.
[[nodiscard]] Schedule build_forward_only(const Spec& spec);

/// The spec, the stages of each device (one word a device, its chunks' stages joined by commas), then one
/// line a device:
///
///     slimpipe p=1 v=1 m=1 n=2 slope=2 training
///     stages 0
///     0: F0.0.0 F0.0.1 B0.0.1 B0.0.0
///
/// The first line ends in "training" or "forward". parse_text(format_text(s)) == s for every s that
/// validate (validate.h) accepts.
[[nodiscard]] std::string format_text(const Schedule& schedule);
/// Blank lines and spaces between words do not matter. Throws InputError with line and word. What the
/// actions mean together is validate's to judge.
[[nodiscard]] Schedule parse_text(std::string_view text);

}  // namespace slimpipe::schedule
