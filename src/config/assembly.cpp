#include "config/assembly.h"

#include <algorithm>
#include <fmt/format.h>

#include "slimpipe/core/check.h"

#include "config/presets.h"
#include "config/source_text.h"
#include "config/suggest.h"

namespace slimpipe::config {
namespace {

constexpr std::size_t kMaxListedProblems = 100;

/// The entry's value, as an error says it: "ten" in quotes, or what stands in place of a value.
std::string found(const Entry& entry) {
  switch (entry.form) {
    case Form::kPlain:
      return fmt::format("found \"{}\"", printable(entry.text));
    case Form::kQuoted:
      return fmt::format("found the text \"{}\"", printable(entry.text));
    case Form::kNothing:
      return "found nothing";
    case Form::kList:
      return "found a list";
    case Form::kMapping:
      return "found a mapping";
  }
  return "";
}

bool takes_text(const Domain& domain) {
  return std::holds_alternative<Text>(domain) || std::holds_alternative<Choices>(domain);
}

/// Numbers and true/false in quotes are texts: refused, as is everything that is not a scalar.
std::optional<Value> value_of(const Entry& entry, const Domain& domain) {
  const bool fits = entry.form == Form::kPlain || (entry.form == Form::kQuoted && takes_text(domain));
  if (!fits) return std::nullopt;
  return parse(domain, entry.text);
}

bool is_inside(std::string_view key, std::string_view section) {
  return key.size() > section.size() && key.starts_with(section) && key[section.size()] == '.';
}

}  // namespace

Assembly::Assembly(std::string name) : name_(std::move(name)), states_(field_table().size()) {}

void Assembly::add(Source source) {
  problems_.insert(problems_.end(), source.problems.begin(), source.problems.end());
  entries_.insert(entries_.end(), source.entries.begin(), source.entries.end());
  complete_ = complete_ && source.complete;
}

Loaded Assembly::finish() {
  apply_preset();
  std::string refused;  // a mapping that was reported as a whole, so that its contents are not
  for (const Entry& entry : entries_) {
    if (!refused.empty() && is_inside(entry.key, refused)) continue;
    apply(entry);
    const bool known_mapping = entry.form != Form::kMapping || is_section(entry.key);
    refused = known_mapping ? "" : entry.key;
  }
  derive_sizes();
  // Where reading stopped early, what seems to be missing may only be unread.
  if (complete_) {
    check_required();
    for (const Rule& rule : rules()) check_rule(rule);
  }
  if (!problems_.empty()) throw_problems();

  Loaded loaded{config_, {}};
  for (std::size_t i = 0; i < states_.size(); ++i)
    loaded.origins.emplace_back(field_table()[i].key, states_[i].origin);
  return loaded;
}

void Assembly::apply_preset() {
  const Preset* preset = nullptr;
  for (const Entry& entry : entries_)
    if (entry.key == "model.preset") preset = find_preset(entry.text);
  if (preset == nullptr) return;
  config_.model = preset->model;
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (is_inside(field_table()[i].key, "model")) states_[i].origin = fmt::format("preset {}", preset->name);
}

void Assembly::apply(const Entry& entry) {
  if (is_section(entry.key)) {
    if (entry.form == Form::kMapping || entry.form == Form::kNothing) return;
    report(entry.rank, fmt::format("{}: this is a section; expected one of its keys ({}), {}", entry.where,
                                   keys_inside(entry.key), found(entry)));
    return;
  }
  const int index = find_field(entry.key);
  if (index < 0)
    report_unknown(entry);
  else
    apply_value(entry, index);
}

void Assembly::report_unknown(const Entry& entry) {
  // Suggestions cost time; beyond what is listed nobody would read them.
  const bool listed = problems_.size() < kMaxListedProblems;
  report(entry.rank,
         fmt::format("{}: unknown key{}", entry.where, listed ? suggestion_for_key(entry.key) : ""));
}

void Assembly::apply_value(const Entry& entry, int index) {
  const Field& field = field_table()[static_cast<std::size_t>(index)];
  State& state = states_[static_cast<std::size_t>(index)];
  state = {.origin = entry.origin, .where = entry.where, .good = false};
  const auto report_unavailable = [&](const std::string& text) {
    report(entry.rank, fmt::format("{}: {} is not available in this build (this build has: {})", entry.where,
                                   text, field.available_text()));
  };
  const std::optional<Value> value = value_of(entry, field.domain);
  if (!value && std::ranges::count(field.unavailable, entry.text) > 0) {
    report_unavailable(entry.text);
    return;
  }
  if (!value) {
    const bool bare_number = entry.form == Form::kQuoted && parse(field.domain, entry.text);
    report(entry.rank,
           fmt::format("{}: expected {}, {}{}", entry.where, expectation(field.domain), found(entry),
                       bare_number ? "; remove the quotes" : remark(field.domain, entry.text)));
    return;
  }
  const std::string text = format(field.domain, *value);
  const std::vector<std::string>& available = field.available;
  if (!available.empty() && std::find(available.begin(), available.end(), text) == available.end()) {
    report_unavailable(text);
    return;
  }
  field.set(config_, *value);
  state.good = true;
}

void Assembly::derive_sizes() {
  ModelConfig& model = config_.model;
  if (model.kv_heads == 0 && model.heads > 0) {
    model.kv_heads = model.heads;
    state("model.kv_heads").origin = "derived: model.heads";
  }
  if (model.head_size == 0 && model.heads > 0 && model.hidden % model.heads == 0) {
    model.head_size = model.hidden / model.heads;
    state("model.head_size").origin = "derived: model.hidden / model.heads";
  }
}

void Assembly::check_required() {
  const bool preset_failed = !state("model.preset").good;
  std::vector<std::string_view> sizes;
  const RunConfig defaults;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Field& field = field_table()[i];
    const bool missing =
        field.need == Need::kRequired && states_[i].good && field.get(config_) == field.get(defaults);
    if (!missing) continue;
    if (section_of(field.key) == "model")
      sizes.push_back(field.key);
    else
      report(kWholeRank, fmt::format("{}: {}: required ({}): {}", name_, field.key, expectation(field.domain),
                                     field.meaning));
  }
  if (sizes.empty() || preset_failed) return;
  report(kWholeRank, fmt::format("{}: {}: required; set them, or take them from a model.preset ({})", name_,
                                 fmt::join(sizes, ", "), fmt::join(preset_names(), ", ")));
}

void Assembly::check_rule(const Rule& rule) {
  std::string_view where = name_;   // of the first field that somebody wrote
  std::vector<std::string> others;  // where the rest that is not at its default came from
  for (const std::string_view key : rule.keys) {
    const State& s = state(key);
    if (!s.good) return;
    if (where == name_ && !s.where.empty())
      where = s.where;
    else if (s.origin != "default")
      others.push_back(fmt::format("{}: {}", key, s.origin));
  }
  const std::string rest = others.empty() ? "" : fmt::format(" ({})", fmt::join(others, "; "));
  for (const std::string& text : rule.violations(config_))
    report(kWholeRank, fmt::format("{}: {}{}", where, text, rest));
}

Assembly::State& Assembly::state(std::string_view key) {
  const int index = find_field(key);
  SLIMPIPE_CHECK(index >= 0, "no field {}", key);
  return states_[static_cast<std::size_t>(index)];
}

void Assembly::throw_problems() {
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.rank < b.rank; });
  std::string text;
  if (problems_.size() > 1) text = fmt::format("the configuration has {} problems:\n", problems_.size());
  const std::size_t listed = std::min(problems_.size(), kMaxListedProblems);
  for (std::size_t i = 0; i < listed; ++i) text += fmt::format("{}{}", i > 0 ? "\n" : "", problems_[i].text);
  if (listed < problems_.size()) text += fmt::format("\nand {} more", problems_.size() - listed);
  throw InputError(text);
}

}  // namespace slimpipe::config
