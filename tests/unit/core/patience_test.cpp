#include "slimpipe/core/patience.h"

#include <utility>

#include "slimpipe/core/check.h"

#include "support/catch.h"

namespace slimpipe {
namespace {

using namespace std::chrono_literals;

constexpr PatienceLimits kMinutes{.report_every = 60s, .give_up_after = 600s};

}  // namespace

TEST_CASE("silence is told within a quarter more than the time set, wherever it begins between two looks",
          "[unit]") {
  for (auto begin = 0s; begin < 24s; ++begin) {
    Patience patience(kMinutes);
    Patience::Time now;
    patience.restart(now);
    const Patience::Time last_move = now + begin;
    bool seen = false;  // the move, by the first look after it
    while (true) {
      now += patience.interval();
      if (now > last_move && !std::exchange(seen, true)) {
        patience.restart(now);
        continue;
      }
      if (patience.look(now).report) break;
    }
    CHECK(now - last_move >= 60s);
    CHECK(now - last_move <= 75s);
  }
}

TEST_CASE("reports come once a period, and the end after the time set for it", "[unit]") {
  Patience patience(kMinutes);
  Patience::Time now;
  patience.restart(now);
  int reports = 0;
  Patience::Verdict verdict;
  while (!verdict.give_up) {
    verdict = patience.look(now += patience.interval());
    if (verdict.report) ++reports;
    CHECK(verdict.report == (verdict.quiet.count() % kMinutes.report_every.count() == 0));
  }
  CHECK(reports == 10);
  CHECK(verdict.quiet == 600s);
  patience.restart(now);
  CHECK_FALSE(patience.look(now + patience.interval()).give_up);
}

TEST_CASE("a process that was suspended for long does not give up on the others when it goes on", "[unit]") {
  Patience patience(kMinutes);
  Patience::Time now;
  patience.restart(now);
  const Patience::Verdict verdict = patience.look(now + 24h);
  CHECK(verdict.quiet < 60s);
  CHECK_FALSE(verdict.give_up);
}

TEST_CASE("without reports silence still ends, after ten minutes", "[unit]") {
  const PatienceLimits limits = patience_of(0);
  Patience patience(limits);
  Patience::Time now;
  patience.restart(now);
  Patience::Verdict verdict;
  while (!verdict.give_up) {
    verdict = patience.look(now += patience.interval());
    CHECK_FALSE(verdict.report);
  }
  CHECK(verdict.quiet == 600s);
}

TEST_CASE("a report every so many seconds means the end after ten times as many", "[unit]") {
  CHECK(patience_of(60).report_every == 60s);
  CHECK(patience_of(60).give_up_after == 600s);
  CHECK(patience_of(0.5).report_every == 500ms);
  CHECK(patience_of(0.5).give_up_after == 5s);
  CHECK(patience_of(1e-12).report_every > 0s);
  CHECK(patience_of(1e6).give_up_after == 10'000'000s);
  CHECK_THROWS_AS(Patience({.report_every = 1s, .give_up_after = 0s}), Error);
}

}  // namespace slimpipe
