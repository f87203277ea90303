#include "slimpipe/train/memory_plan.h"

#include "support/catch.h"
#include "support/exchange_cases.h"

namespace slimpipe::test {
namespace {

void check_cases(const std::vector<ExchangeCase>& all) {
  ExchangeReferences references;
  for (std::size_t i = 0; i < all.size(); ++i) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (i % 3 != 0) continue;
#endif
    for (const std::string& problem : check_exchange_case(all[i], {}, references)) FAIL_CHECK(problem);
  }
}

}  // namespace

TEST_CASE("two devices: runs that exchange attention equal the plain run", "[runtime]") {
  check_cases(exchange_cases({2}));
}

TEST_CASE("three and four devices: runs that exchange attention equal the plain run", "[runtime]") {
  check_cases(exchange_cases({3, 4}));
}

TEST_CASE("an exchange gives the same bits early and late", "[runtime]") {
  for (ExchangeCase c : exchange_cases({3})) {
    c.base.dtype = config::ComputeType::kBf16;
    if (c.base.kind == schedule::Kind::kTeraPipe) continue;
    INFO(c.name());
    c.early = true;
    const MatrixResult early = run_matrix_config(exchange_config(c), {});
    c.early = false;
    const auto differences = compare(run_matrix_config(exchange_config(c), {}), early, true);
    CAPTURE(differences);
    REQUIRE(differences.empty());
  }
}

TEST_CASE("the memory plan of an exchange is what a step is measured to take", "[runtime]") {
  for (const ExchangeCase& c : exchange_cases({2, 4})) {
    INFO(c.name());
    const config::RunConfig config = exchange_config(c);
    const auto plans = train::plan_memory(config, train::make_platform(config), 0);
    train::Session session(config, {});
    session.initialise();
    const auto reports = session.train_step(matrix_batch(c.base.microbatches, 0, c.sequence()), {}).devices;
    REQUIRE(plans.size() == reports.size());
    std::int64_t staging = 0;
    for (std::size_t device = 0; device < plans.size(); ++device) {
      INFO("device " << device);
      for (std::size_t scope = 0; scope < device::kNumScopes; ++scope)
        REQUIRE(static_cast<double>(plans[device].peak[scope]) == reports[device].peak_bytes[scope]);
      staging += plans[device].peak[static_cast<std::size_t>(device::Scope::kExchange)];
    }
    REQUIRE(staging > 0);
  }
}

}  // namespace slimpipe::test
