#pragma once
// Entries to a configuration: defaults, preset, file and overrides, each over the one before; then derived
// sizes and rules. Collects every problem instead of stopping at the first.

#include <string>
#include <string_view>
#include <vector>

#include "slimpipe/config/load.h"

#include "config/entry.h"
#include "config/field.h"
#include "config/rules.h"

namespace slimpipe::config {

class Assembly {
 public:
  /// `name` stands for the configuration as a whole in messages.
  explicit Assembly(std::string name);

  /// Takes over a source's problems and keeps its entries for finish().
  void add(Source source);
  /// Throws InputError with all problems, in the order of the file's lines, then --set, then the whole.
  [[nodiscard]] Loaded finish();

 private:
  struct State {
    std::string origin = "default";
    std::string where;  ///< start of a message about the value; empty where nobody wrote it
    bool good = true;
  };

  void report(int rank, std::string text) { problems_.push_back({rank, std::move(text)}); }
  void apply_preset();
  void apply(const Entry& entry);
  void apply_value(const Entry& entry, int index);
  void report_unknown(const Entry& entry);
  void derive_sizes();
  void check_required();
  void check_rule(const Rule& rule);
  [[nodiscard]] State& state(std::string_view key);
  [[noreturn]] void throw_problems();

  std::string name_;
  RunConfig config_;
  std::vector<State> states_;  ///< in field table order
  std::vector<Entry> entries_;
  std::vector<Problem> problems_;
  bool complete_ = true;
};

}  // namespace slimpipe::config
