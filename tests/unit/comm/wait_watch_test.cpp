#include "comm/wait_watch.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "support/catch.h"

namespace slimpipe::comm {
namespace {

using namespace std::chrono_literals;

/// Collects what a watch tells.
class Told {
 public:
  WaitWatch::Tell into() {
    return [this](const std::string& text) {
      const std::scoped_lock lock(mutex_);
      texts_.push_back(text);
      changed_.notify_all();
    };
  }
  /// Waits until so many are told; the bound only ends a failing test.
  std::vector<std::string> at_least(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 20s, [&] { return texts_.size() >= count; }));
    return texts_;
  }
  std::size_t count() {
    const std::scoped_lock lock(mutex_);
    return texts_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("who waits too long is told, with what is awaited, and given up once a wait", "[unit]") {
  Told reports;
  Told ends;
  WaitWatch watch({.report_every = 2ms, .give_up_after = 6ms}, "rank 1", reports.into(), ends.into());
  watch.begin("rank 0 at the start");
  CHECK(contains(ends.at_least(1)[0], "given up: rank 1 has waited "));
  CHECK(contains(ends.at_least(1)[0], " s for rank 0 at the start"));
  CHECK(contains(reports.at_least(5)[0], "rank 1 has waited "));  // it goes on telling
  CHECK(ends.count() == 1);
  watch.begin("ranks 2, 3 at the end");
  CHECK(contains(ends.at_least(2)[1], " s for ranks 2, 3 at the end"));
}

TEST_CASE("nothing is told or given up where nothing is awaited", "[unit]") {
  Told reports;
  Told ends;
  WaitWatch watch({.report_every = 1ms, .give_up_after = 1ms}, "rank 1", reports.into(), ends.into());
  { const Waiting waiting(watch, "the first"); }
  const std::size_t told = reports.count();
  const std::size_t ended = ends.count();
  WaitWatch other(
      {.report_every = 1ms, .give_up_after = 1ms}, "rank 2", [](const auto&) {}, ends.into());
  other.begin("the time that the first watch would need");
  ends.at_least(ended + 1);
  CHECK(reports.count() == told);
}

}  // namespace slimpipe::comm
