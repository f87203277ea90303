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
[[nodiscard]] std::vector<std::string_view> kind_names();
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

/// Everything wrong with a spec, a sentence each with the numbers; empty when it can be built.
[[nodiscard]] std::vector<std::string> problems(const Spec& spec);

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
[[nodiscard]] std::string to_string(const Action& action);

struct Schedule {
  Spec spec;
  std::vector<std::vector<int>> stage_of;    ///< [device][chunk] -> stage
  std::vector<std::vector<Action>> devices;  ///< [device] -> actions in order
  bool operator==(const Schedule&) const = default;
  [[nodiscard]] int device_of(int stage) const;
  [[nodiscard]] int chunk_of(int stage) const;
};

/// Builds the training schedule. Throws InputError listing problems(spec) if there are any.
[[nodiscard]] Schedule build(const Spec& spec);
/// The forward actions alone, in an order that needs no warm-up: for validation.
[[nodiscard]] Schedule build_forward_only(const Spec& spec);

/// One line a device: "0: F0.0.0 F0.0.1 B0.0.1 B0.0.0". parse(format(s)) == s.
[[nodiscard]] std::string format_text(const Schedule& schedule);
/// Throws InputError with line and word.
[[nodiscard]] Schedule parse_text(std::string_view text);

}  // namespace slimpipe::schedule
