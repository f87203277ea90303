#include "slimpipe/schedule/schedule.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "slimpipe/core/check.h"

namespace slimpipe::schedule {
namespace {

enum class Chunks : std::uint8_t { kOne, kTwo, kTwoOrMore, kAny };

struct KindEntry {
  Kind kind;
  std::string_view name;
  bool sliced;
  bool split;
  Chunks chunks;  ///< what virtual_stages may be
};
constexpr std::array kKinds{
    KindEntry{Kind::kGpipe, "gpipe", false, false, Chunks::kOne},
    KindEntry{Kind::kOneFOneB, "1f1b", false, false, Chunks::kOne},
    KindEntry{Kind::kInterleaved, "interleaved-1f1b", false, false, Chunks::kTwoOrMore},
    KindEntry{Kind::kZbV, "zb-v", false, true, Chunks::kTwo},
    KindEntry{Kind::kVHalf, "v-half", false, true, Chunks::kTwo},
    KindEntry{Kind::kTeraPipe, "terapipe", true, false, Chunks::kOne},
    KindEntry{Kind::kSlimPipe, "slimpipe", true, false, Chunks::kAny},
    KindEntry{Kind::kSlimPipeZb, "slimpipe-zb", true, true, Chunks::kAny},
};

const KindEntry& entry_of(Kind kind) {
  const auto found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindEntry& entry) { return entry.kind == kind; });
  SLIMPIPE_CHECK(found != kKinds.end(), "schedule kind {} is not in the table", static_cast<int>(kind));
  return *found;
}

/// Whether the product of positive factors is at most `limit`; never overflows.
bool product_within(std::initializer_list<std::int64_t> factors, std::int64_t limit) {
  for (const std::int64_t factor : factors) limit /= factor;
  return limit > 0;
}

/// What is wrong with the number of chunks for the kind, empty if nothing; numbers below 1 are told
/// elsewhere.
std::string chunk_problem(const Spec& spec) {
  const int v = spec.virtual_stages;
  const auto name = name_of(spec.kind);
  switch (entry_of(spec.kind).chunks) {
    case Chunks::kOne:
      if (v > 1) return fmt::format("virtual_stages {}: {} has one stage a device (expected 1)", v, name);
      break;
    case Chunks::kTwo:
      if (v >= 1 && v != 2)
        return fmt::format("virtual_stages {}: {} has two stages a device (expected 2)", v, name);
      break;
    case Chunks::kTwoOrMore:
      if (v == 1)
        return fmt::format("virtual_stages 1: {} interleaves stages (expected at least 2; 1f1b has 1)", name);
      break;
    case Chunks::kAny:
      break;
  }
  return {};
}

/// Of a sliced kind with several stages a device.
void append_interleaving_problems(const Spec& spec, std::vector<std::string>& found) {
  if (spec.slices < spec.pipeline) {
    found.push_back(
        fmt::format("slices {}: with virtual_stages {} each of the {} devices needs a slice of its own "
                    "(expected at least {})",
                    spec.slices, spec.virtual_stages, spec.pipeline, spec.pipeline));
    return;
  }
  const std::int64_t steepest = steepest_slope(spec);
  if (spec.warmup_slope > steepest)
    found.push_back(fmt::format(
        "warmup_slope {}: with virtual_stages {}, pipeline {} and slices in groups of {} a slope above {} "
        "deadlocks (expected 1 to {})",
        spec.warmup_slope, spec.virtual_stages, spec.pipeline, group_size(spec), steepest, steepest));
}

}  // namespace

std::string_view name_of(Kind kind) {
  return entry_of(kind).name;
}

std::optional<Kind> kind_from_name(std::string_view name) {
  for (const auto& entry : kKinds)
    if (entry.name == name) return entry.kind;
  return std::nullopt;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  names.reserve(kKinds.size());
  for (const auto& entry : kKinds) names.emplace_back(entry.name);
  return names;
}

bool is_sliced(Kind kind) {
  return entry_of(kind).sliced;
}

bool splits_backward(Kind kind) {
  return entry_of(kind).split;
}

int least_virtual_stages(Kind kind) {
  const Chunks chunks = entry_of(kind).chunks;
  return chunks == Chunks::kTwo || chunks == Chunks::kTwoOrMore ? 2 : 1;
}

std::string_view name_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::kNone:
      return "none";
    case Exchange::kPairwise:
      return "pairwise";
    case Exchange::kBalanced:
      return "balanced";
  }
  return "?";
}

std::vector<std::string> exchange_names() {
  return {"none", "pairwise", "balanced"};
}

std::string_view name_of(Placement placement) {
  return placement == Placement::kVee ? "vee" : "loop";
}

Placement placement_of(Kind kind) {
  return kind == Kind::kZbV || kind == Kind::kVHalf ? Placement::kVee : Placement::kLoop;
}

std::vector<std::string> problems(const Spec& spec, std::int64_t layers) {
  std::vector<std::string> found;
  const auto at_least_one = [&](std::string_view name, int value) {
    if (value < 1) found.push_back(fmt::format("{} {}: expected at least 1", name, value));
  };
  at_least_one("pipeline", spec.pipeline);
  at_least_one("virtual_stages", spec.virtual_stages);
  at_least_one("microbatches", spec.microbatches);
  at_least_one("slices", spec.slices);
  at_least_one("warmup_slope", spec.warmup_slope);
  const bool positive =
      spec.pipeline > 0 && spec.virtual_stages > 0 && spec.microbatches > 0 && spec.slices > 0;

  if (const auto problem = chunk_problem(spec); !problem.empty()) found.push_back(problem);
  if (!is_sliced(spec.kind) && spec.slices > 1)
    found.push_back(fmt::format("slices {}: {} does not cut sequences into slices (expected 1)", spec.slices,
                                name_of(spec.kind)));
  if (!positive) return found;
  if (is_sliced(spec.kind) && spec.virtual_stages > 1) append_interleaving_problems(spec, found);
  const std::int64_t stages = std::int64_t{spec.pipeline} * spec.virtual_stages;
  const bool deep = layers > stages;
  if (!product_within({deep ? layers : stages, spec.microbatches, spec.slices}, kMaxLayerForwards))
    found.push_back(fmt::format(
        "microbatches {} × slices {} × {} {} are more than the {} a step can have: lower microbatches "
        "or slices",
        spec.microbatches, spec.slices, deep ? "layers" : "stages", deep ? layers : stages,
        kMaxLayerForwards));
  return found;
}

int group_size(const Spec& spec) {
  const int n = spec.slices;
  if (spec.virtual_stages == 1) return n;
  int group = n;
  for (int divisor = 1; divisor <= n / divisor; ++divisor) {
    if (n % divisor != 0) continue;
    for (const int other : {divisor, n / divisor})
      if (other >= spec.pipeline) group = std::min(group, other);
  }
  return group;
}

std::int64_t steepest_slope(const Spec& spec) {
  if (spec.virtual_stages == 1 || spec.pipeline == 1) return std::numeric_limits<int>::max();
  // A steeper device starts its pairs so far ahead that it needs, for a forward of chunk 1, the return of a
  // group that the devices after it have not begun; found by exhaustive simulation (tests repeat it).
  const std::int64_t reach =
      std::int64_t{2} * group_size(spec) + spec.pipeline - (spec.virtual_stages > 2 ? 1 : 0);
  return reach / (spec.pipeline - 1) - 1;
}

std::string to_string(const Action& action) {
  constexpr std::array kLetters{'F', 'B', 'I', 'W', 'H'};
  const auto kind = static_cast<std::size_t>(action.kind);
  SLIMPIPE_CHECK(kind < kLetters.size(), "action kind {} is not in the table", kind);
  auto text = fmt::format("{}{}.{}.{}", kLetters[kind], action.chunk, action.microbatch, action.slice);
  if (action.arg != -1) text += fmt::format("@{}", action.arg);
  return text;
}

int Schedule::device_of(int stage) const {
  for (int device = 0; device < std::ssize(stage_of); ++device) {
    const auto& stages = stage_of[device];
    if (std::find(stages.begin(), stages.end(), stage) != stages.end()) return device;
  }
  throw_error("stage {} is on no device of this schedule of {} stages", stage, spec.stages());
}

}  // namespace slimpipe::schedule
