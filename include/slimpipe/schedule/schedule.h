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

enum class Kind : std::uint8_t {
  kGpipe,
  kOneFOneB,
  kInterleaved,
  kZbV,
  kVHalf,
  kTeraPipe,
  kSlimPipe,
  kSlimPipeZb
};
/// "gpipe", "1f1b", "interleaved-1f1b", "zb-v", "v-half", "terapipe", "slimpipe", "slimpipe-zb".
[[nodiscard]] std::string_view name_of(Kind kind);
[[nodiscard]] std::optional<Kind> kind_from_name(std::string_view name);
[[nodiscard]] std::vector<std::string> kind_names();
/// Whether the kind cuts sequences into slices (otherwise slices must be 1).
[[nodiscard]] bool is_sliced(Kind kind);
/// Whether the kind has the backward for weights apart from the one for inputs.
[[nodiscard]] bool splits_backward(Kind kind);

/// The fewest stages a device can have: 2 for interleaved-1f1b, zb-v and v-half.
[[nodiscard]] int least_virtual_stages(Kind kind);

/// Where stages live. kLoop: stage g on device g mod p, chunk g div p. kVee (two chunks): stages go down the
/// devices and up again, stage g of the second half on device 2p - 1 - g.
enum class Placement : std::uint8_t { kLoop, kVee };
/// "loop", "vee".
[[nodiscard]] std::string_view name_of(Placement placement);
[[nodiscard]] Placement placement_of(Kind kind);

/// How devices that work at the same time even out their attention among themselves (exchange.h).
enum class Exchange : std::uint8_t { kNone, kPairwise, kBalanced };
/// "none", "pairwise", "balanced".
[[nodiscard]] std::string_view name_of(Exchange exchange);
[[nodiscard]] std::vector<std::string> exchange_names();

/// What to build. Symbols as in the SlimPipe paper (arXiv 2504.14519).
struct Spec {
  Kind kind = Kind::kSlimPipe;
  int pipeline = 1;        ///< p, devices
  int virtual_stages = 1;  ///< v, model chunks per device
  int microbatches = 1;    ///< m per step
  int slices = 1;          ///< n per microbatch
  int warmup_slope =
      2;  ///< δ: warm-up forwards grow by δ per device towards the first; the slimpipe kinds only
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
  kHelp,            ///< attention for other devices by one that has nothing else to do; chunk, microbatch
                    ///< and slice are 0, `arg` says which
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;
  int microbatch = 0;
  int slice = 0;
  int arg = -1;  ///< index into a side table of the schedule, -1 for none
  bool operator==(const Action&) const = default;
};
/// "F0.1.3" = forward of chunk 0, microbatch 1, slice 3; B backward, I for inputs, W for weights, H help.
/// An arg of 0 or more follows as "@arg".
[[nodiscard]] std::string to_string(const Action& action);

/// The owner's slice attends to keys [first_key, first_key + keys) of its sequence, which lie before the
/// slice, on the helper: in every layer of the owner's chunk.
struct Help {
  int owner = 0;
  int helper = 0;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;
  Action action;  ///< the owner's, without its arg
  bool operator==(const Help&) const = default;
};

/// The exchange of attention context (exchange.h), the side table of Action::arg: slots[arg] are the helps of
/// a slot that has any. The actions of its owners and of its helpers carry that arg; a helper that has no
/// action in the slot has a kHelp.
struct HelpTable {
  std::int64_t slice_tokens = 0;         ///< T, tokens of a slice; 0: no exchange
  bool early = true;                     ///< K and V are sent while the layer before is computed
  std::vector<std::vector<Help>> slots;  ///< by owner, helper and first key; nobody is owner and helper
  bool operator==(const HelpTable&) const = default;
};

struct Schedule {
  Spec spec;
  bool training = true;                      ///< false: forward actions alone
  std::vector<std::vector<int>> stage_of;    ///< [device][chunk] -> stage
  std::vector<std::vector<Action>> devices;  ///< [device] -> actions in order
  HelpTable exchange;
  bool operator==(const Schedule&) const = default;
  /// The device that holds the stage; throws Error where none does.
  [[nodiscard]] int device_of(int stage) const;
};

/// Builds the training schedule. Throws InputError listing problems(spec) if there are any.
///
/// In every chunk forwards take microbatches in order and each one's slices 0..n-1, backwards microbatches in
/// order and each one's slices n-1..0, and weight gradients the order of the backwards. Over the chunks of a
/// device:
///   interleaved-1f1b       for each p microbatches: each chunk, each of them; backwards take the chunks of a
///                          group in descending order. Where p does not divide m, it is the schedule of the
///                          next multiple without the microbatches that do not exist
///   slimpipe, slimpipe-zb  for each group of slices (group_size): each chunk, each slice of the group;
///                          backwards exactly the reverse within a microbatch
/// But for the list-scheduled kinds a device runs its warm-up forwards, then pairs (forward, backward), then
/// the remaining backwards. Warm-up forwards on device r, at most all m·n·v of them:
///   gpipe, terapipe    all
///   1f1b               p - 1 - r
///   interleaved-1f1b   2·(p - 1 - r) + (v - 1)·min(p, m)
///   slimpipe           n·v - 1 + δ·(p - 1 - r)
/// zb-v, v-half and slimpipe-zb are made by a list scheduler that gives each device, slot by slot of equal
/// forwards, backwards and weight gradients, a backward before a forward before a weight gradient, with at
/// most so many (slice, chunk) units between their forward and their weight gradient:
///   zb-v          2·p
///   v-half        p + 2
///   slimpipe-zb   slimpipe's peak and v·(p - 1) more; forwards run ahead of backwards as far as slimpipe's
[[nodiscard]] Schedule build(const Spec& spec);
/// The forward actions alone, in an order that needs no warm-up: for validation.
[[nodiscard]] Schedule build_forward_only(const Spec& spec);
/// Consecutive slices that go through all chunks of a device together: the smallest divisor of n that is at
/// least p; n where v is 1.
[[nodiscard]] int group_size(const Spec& spec);
/// The largest δ that does not deadlock. Any with one stage a device; otherwise with groups of g slices
/// (δ + 1)·(p - 1) must be at most 2g + p, less 1 where v > 2. Slopes 1 and 2 always are.
[[nodiscard]] std::int64_t steepest_slope(const Spec& spec);

/// The spec, the stages of each device (one word a device, its chunks' stages joined by commas), then one
/// line a device:
///
///     slimpipe p=1 v=1 m=1 n=2 slope=2 training
///     stages 0
///     0: F0.0.0 F0.0.1 B0.0.1 B0.0.0
///
/// With an exchange follow its slice tokens, whether it is "early" or "late", and one line a slot, of words
/// owner>helper:action:first_key+keys:
///
///     exchange tokens=256 early
///     @0: 1>0:F0.0.3:0+256
///
/// The first line ends in "training" or "forward". parse_text(format_text(s)) == s for every s that
/// validate (validate.h) accepts.
[[nodiscard]] std::string format_text(const Schedule& schedule);
/// Blank lines and spaces between words do not matter. Throws InputError with line and word. What the
/// actions mean together is validate's to judge.
[[nodiscard]] Schedule parse_text(std::string_view text);

}  // namespace slimpipe::schedule
