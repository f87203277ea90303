#include "slimpipe/schedule/schedule.h"

#include <algorithm>
#include <fmt/format.h>

#include "slimpipe/core/check.h"

namespace slimpipe::schedule {
namespace {

struct KindEntry {
  Kind kind;
  std::string_view name;
  bool sliced;
};
constexpr std::array kKinds{
    KindEntry{Kind::kGpipe, "gpipe", false},
    KindEntry{Kind::kOneFOneB, "1f1b", false},
    KindEntry{Kind::kTeraPipe, "terapipe", true},
    KindEntry{Kind::kSlimPipe, "slimpipe", true},
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

std::vector<std::string> unavailable_kind_names() {
  return {"interleaved-1f1b", "zb-v", "v-half"};
}

bool is_sliced(Kind kind) {
  return entry_of(kind).sliced;
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

  if (spec.virtual_stages > 1)
    found.push_back(
        fmt::format("virtual_stages {}: not available in this build (expected 1)", spec.virtual_stages));
  if (!is_sliced(spec.kind) && spec.slices > 1)
    found.push_back(fmt::format("slices {}: {} does not cut sequences into slices (expected 1)", spec.slices,
                                name_of(spec.kind)));
  if (!positive) return found;
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

std::string to_string(const Action& action) {
  constexpr std::array kLetters{'F', 'B', 'I', 'W'};
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
