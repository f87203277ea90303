#pragma once
// Runs with the attention context exchange against the plain run.

#include "slimpipe/schedule/exchange.h"

#include "support/equality_matrix.h"

namespace slimpipe::test {

struct ExchangeCase {
  MatrixCase base;
  schedule::Exchange exchange = schedule::Exchange::kBalanced;
  bool early = true;
  /// Slices of at least a strip, so that balanced has something to give.
  [[nodiscard]] std::int64_t sequence() const { return schedule::kExchangeStrip * base.slices; }
  [[nodiscard]] std::string name() const {
    return fmt::format("{} exchange={} {}", base.name(), schedule::name_of(exchange),
                       early ? "early" : "late");
  }
};

inline config::RunConfig exchange_config(const ExchangeCase& c) {
  config::RunConfig config = matrix_config(c.base);
  config.data.sequence_length = c.sequence();
  config.schedule.exchange = c.exchange;
  config.schedule.early_exchange = c.early;
  return config;
}

/// Every pipeline size with both plans, early and late, with several stages and microbatches.
inline std::vector<ExchangeCase> exchange_cases(const std::vector<int>& pipelines) {
  using schedule::Kind;
  std::vector<ExchangeCase> cases;
  for (const int p : pipelines)
    for (const auto exchange : {schedule::Exchange::kPairwise, schedule::Exchange::kBalanced}) {
      const auto add = [&](MatrixCase base, int v, bool early) {
        base.virtual_stages = v;
        if (base.layers % (p * v) != 0) base.layers = 2 * p * v;
        cases.push_back({base, exchange, early});
      };
      add({Kind::kSlimPipe, p, 2 * p, 2, 2, false}, 1, true);
      add({Kind::kSlimPipe, p, 2 * p + 1, 2, 2, true}, 1, false);
      add({Kind::kSlimPipe, p, p + 1, 2, 2, false}, 2, true);
      // Neighbouring slices differ by one, half of which is no whole slice.
      if (p == 2 && exchange == schedule::Exchange::kPairwise) continue;
      add({Kind::kTeraPipe, p, 2 * p, 1, 2, false}, 1, true);
    }
  return cases;
}

/// Made once for each length, model and number of microbatches.
class ExchangeReferences {
 public:
  const MatrixResult& plain(const ExchangeCase& c) {
    MatrixCase base{schedule::Kind::kGpipe, 1, 1, c.base.microbatches, 2, c.base.tied, c.base.dtype};
    base.layers = c.base.layers;
    config::RunConfig config = matrix_config(base);
    config.data.sequence_length = c.sequence();
    const auto [it, added] = results_.try_emplace(fmt::format("{} {}", base.name(), c.sequence()));
    if (added) it->second = run_matrix_config(config, {});
    return it->second;
  }

 private:
  std::map<std::string, MatrixResult> results_;
};

/// Problems of one case: results within fp32's rounding of the plain run's, and whether it exchanges at all.
inline std::vector<std::string> check_exchange_case(const ExchangeCase& c,
                                                    const comm::ProcessEnvironment& processes,
                                                    ExchangeReferences& references) {
  const config::RunConfig config = exchange_config(c);
  std::vector<std::string> problems =
      compare(run_matrix_config(config, processes), references.plain(c), false);
  if (train::build_schedule(config).exchange.slots.empty()) problems.emplace_back("no exchange");
  for (std::string& problem : problems) problem.insert(0, c.name() + ": ");
  return problems;
}

}  // namespace slimpipe::test
