#include "config/suggest.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "config/field.h"

namespace slimpipe::config {
namespace {

constexpr std::size_t kLongestKey = 64;  // longer ones are no slips of the finger

using Keys = std::vector<std::string_view>;

Keys known_keys() {
  Keys keys;
  for (const Field& field : field_table()) keys.push_back(field.key);
  for (const std::string& section : section_names()) keys.push_back(section);
  return keys;
}

std::string_view whole(std::string_view key) {
  return key;
}

/// Those of `candidates` whose part is nearest to that of `unknown`, where it still looks like the same
/// word: no more edits than a third of its letters.
Keys nearest(std::string_view unknown, const Keys& candidates,
             std::string_view (*part_of)(std::string_view)) {
  Keys best;
  std::size_t least = kLongestKey;
  for (const std::string_view key : candidates) {
    const std::string_view wanted = part_of(unknown);
    const std::string_view offered = part_of(key);
    const std::size_t distance = edit_distance(wanted, offered);
    if (distance * 3 > std::max(wanted.size(), offered.size()) || distance > least) continue;
    if (distance < least) best.clear();
    least = distance;
    best.push_back(key);
  }
  return best;
}

/// In the order in which people slip: the right name in the wrong section, a misspelt name in the right
/// section, a misspelt section, both.
Keys probable_keys(std::string_view unknown) {
  const Keys known = known_keys();
  Keys same_leaf = known;
  std::erase_if(same_leaf, [unknown](auto key) { return leaf_of(key) != leaf_of(unknown); });
  if (!same_leaf.empty()) {
    const Keys best = nearest(unknown, same_leaf, whole);
    return best.empty() ? same_leaf : best;
  }
  Keys same_section = known;
  std::erase_if(same_section, [unknown](auto key) { return section_of(key) != section_of(unknown); });
  for (const auto& [candidates, part_of] :
       {std::pair(same_section, leaf_of), std::pair(known, whole), std::pair(known, leaf_of)})
    if (Keys best = nearest(unknown, candidates, part_of); !best.empty()) return best;
  return {};
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the dynamic programme: distances of a's prefixes of length i-2, i-1, i to every prefix of b.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, last[j] + 1, current[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, current);
  }
  return last[b.size()];
}

std::string suggestion_for_key(std::string_view unknown) {
  if (unknown.size() > kLongestKey) return "";
  const Keys best = probable_keys(unknown);
  if (best.empty()) return "";
  return fmt::format("; did you mean {}?", fmt::join(best, " or "));
}

}  // namespace slimpipe::config
