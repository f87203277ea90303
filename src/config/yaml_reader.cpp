#include "config/yaml_reader.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <sstream>
#include <vector>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "config/source_text.h"

namespace slimpipe::config {
namespace {

/// A file with more is none that someone wants to mend line by line.
constexpr std::size_t kMaxProblems = 1000;

/// Ends the reading; the problem has been recorded. Never leaves this file.
struct ReadingEnds {};

/// Turns the parser's events into entries.
class EntryCollector final : public YAML::EventHandler {
 public:
  EntryCollector(const std::string& name, Source& source) : name_(name), source_(source) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) end_with(mark, "a second document starts here; a configuration is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_anchor(mark, anchor);
    if (expects_key()) end_with(mark, "a key is missing before ':'");
    add(mark, Form::kNothing, "");
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    end_with(mark, "aliases (*name) are not supported; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_anchor(mark, anchor);
    check_tag(mark, tag);
    if (expects_key())
      take_key(mark, value);
    else
      add(mark, tag == "!" ? Form::kQuoted : Form::kPlain, value);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    enter(mark, tag, anchor, Form::kList);
  }
  void OnSequenceEnd() override { levels_.pop_back(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    enter(mark, tag, anchor, Form::kMapping);
  }
  void OnMapEnd() override { levels_.pop_back(); }

 private:
  /// One open mapping or list.
  struct Level {
    Form form = Form::kMapping;
    std::string prefix;               ///< dotted key of this level, with a final dot; empty at the root
    bool recorded = true;             ///< false inside lists: their items are no entries
    bool has_key = false;             ///< a key has been read and its value comes next
    bool refused = false;             ///< the key was reported: its value is no entry
    std::string key;                  ///< dotted
    int key_line = 0;                 ///< 1-based
    std::map<std::string, int> seen;  ///< keys of this mapping and their lines
  };

  static int line_of_mark(const YAML::Mark& mark) { return mark.line + 1; }

  [[nodiscard]] bool expects_key() const {
    return !levels_.empty() && levels_.back().form == Form::kMapping && !levels_.back().has_key;
  }

  void report(int line, std::string_view text) {
    source_.problems.push_back({line, fmt::format("{}:{}: {}", name_, line, text)});
    if (source_.problems.size() >= kMaxProblems) throw ReadingEnds{};
  }

  [[noreturn]] void end_with(const YAML::Mark& mark, std::string_view text) {
    report(line_of_mark(mark), text);
    throw ReadingEnds{};
  }

  void check_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor)
      report(line_of_mark(mark), "anchors (&name) are not supported; write the value out where it is needed");
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    // "?" and "!" are what the parser itself gives to plain and to quoted values.
    if (!tag.empty() && tag != "?" && tag != "!")
      report(line_of_mark(mark), fmt::format("tags (!name) are not supported, found {}", printable(tag)));
  }

  void take_key(const YAML::Mark& mark, const std::string& key) {
    Level& level = levels_.back();
    const int line = line_of_mark(mark);
    level.has_key = true;
    level.key = level.prefix + key;
    level.key_line = line;
    const std::string refusal = refusal_of_key(level, key);
    level.refused = !refusal.empty();
    if (level.refused) report(line, fmt::format("{}: {}", printable(level.key), refusal));
  }

  /// Why a key cannot stand in its mapping, or empty.
  [[nodiscard]] static std::string refusal_of_key(Level& level, const std::string& key) {
    const auto [first, is_new] = level.seen.emplace(key, level.key_line);
    if (!is_new) return fmt::format("duplicate key, first given in line {}", first->second);
    if (key == "<<") return "merge keys are not supported; write the values out";
    if (const std::size_t dot = key.find('.'); dot != std::string::npos)
      return fmt::format("keys with dots are for --set; write `{}:` and inside it `{}:`",
                         printable(key.substr(0, dot)), printable(key.substr(dot + 1)));
    return "";
  }

  void add(const YAML::Mark& mark, Form form, std::string text) {
    if (levels_.empty()) {
      if (form == Form::kNothing) return;  // an empty document
      end_with(mark, "expected a mapping of sections such as `model:`, found a single value");
    }
    Level& level = levels_.back();
    level.has_key = false;
    if (!level.recorded || level.refused || level.form == Form::kList) return;
    source_.entries.push_back({.key = level.key,
                               .form = form,
                               .text = std::move(text),
                               .where = fmt::format("{}:{}: {}", name_, level.key_line, printable(level.key)),
                               .origin = fmt::format("{}:{}", name_, level.key_line),
                               .rank = level.key_line});
  }

  void enter(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Form form) {
    check_anchor(mark, anchor);
    check_tag(mark, tag);
    if (expects_key()) end_with(mark, "expected a word as key, found a list or mapping");
    if (levels_.size() >= kMaxYamlDepth)
      end_with(mark, fmt::format("nested deeper than {} levels", kMaxYamlDepth));
    Level inner;
    inner.form = form;
    if (levels_.empty()) {
      if (form == Form::kList)
        end_with(mark, "expected a mapping of sections such as `model:`, found a list");
    } else {
      const Level& outer = levels_.back();
      inner.prefix = outer.form == Form::kMapping ? outer.key + "." : outer.prefix;
      inner.recorded = outer.recorded && !outer.refused && outer.form == Form::kMapping;
      add(mark, form, "");
    }
    levels_.push_back(std::move(inner));
  }

  const std::string& name_;
  Source& source_;
  std::vector<Level> levels_;
  int documents_ = 0;
};

/// Offset of the first tab that stands in front of a line's text (a comment is none).
std::optional<std::size_t> tab_of_indentation(std::string_view text) {
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    const std::size_t first = std::min(text.find_first_not_of(" \t\r", line), end);
    const std::size_t tab = text.find('\t', line);
    if (tab < first && first < end && text[first] != '#') return tab;
    line = end + 1;
  }
  return std::nullopt;
}

/// Records what is wrong with the bytes themselves; false where the parser should not see them.
bool check_bytes(std::string_view text, const std::string& name, Source& source) {
  if (text.size() > kMaxYamlBytes) {
    source.problems.push_back(
        {1, fmt::format("{}: {} bytes; a configuration has at most {}", name, text.size(), kMaxYamlBytes)});
    return false;
  }
  if (const auto defect = first_defect(text)) {
    const int line = line_of(text, defect->offset);
    source.problems.push_back(
        {line, fmt::format("{}:{}: expected UTF-8 text, found {}", name, line, defect->what)});
    return false;
  }
  if (const auto tab = tab_of_indentation(text)) {
    const int line = line_of(text, *tab);
    source.problems.push_back(
        {line, fmt::format("{}:{}: the line is indented with a tab; YAML takes only spaces", name, line)});
    return false;
  }
  return true;
}

}  // namespace

Source read_yaml(std::string_view text, const std::string& name) {
  Source source;
  if (!check_bytes(text, name, source)) {
    source.complete = false;
    return source;
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    EntryCollector collector(name, source);
    while (parser.HandleNextDocument(collector)) {
    }
  } catch (const ReadingEnds&) {
    source.complete = false;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    source.problems.push_back({line, fmt::format("{}:{}: not valid YAML: {}", name, line, error.msg)});
    source.complete = false;
  }
  return source;
}

}  // namespace slimpipe::config
