#include "slimpipe/comm/topology.h"

#include <numeric>
#include <set>
#include <string>

#include "slimpipe/core/check.h"

#include "support/catch.h"

namespace slimpipe::comm {
namespace {

std::string input_error_of(ParallelSizes sizes, int processes) {
  try {
    const Topology topology(sizes, processes, 0);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("device numbers and coordinates are one-to-one", "[unit]") {
  const auto sizes = GENERATE(ParallelSizes{1, 1, 1, 1}, ParallelSizes{1, 1, 1, 7}, ParallelSizes{2, 3, 5, 4},
                              ParallelSizes{3, 1, 1, 3}, ParallelSizes{1, 7, 2, 1});
  const Topology topology(sizes, 1, 0);
  for (int device = 0; device < topology.devices(); ++device) {
    const Coordinates at = topology.coordinates(device);
    CHECK(topology.device_at(at) == device);
    CHECK(at.tensor < sizes.tensor);
    CHECK(at.context < sizes.context);
    CHECK(at.data < sizes.data);
    CHECK(at.pipeline < sizes.pipeline);
  }
}

TEST_CASE("devices are numbered with tensor innermost, then context, data, pipeline", "[unit]") {
  const Topology topology({.tensor = 2, .context = 3, .data = 5, .pipeline = 4}, 1, 0);
  CHECK(topology.device_at({.tensor = 1}) == 1);
  CHECK(topology.device_at({.context = 1}) == 2);
  CHECK(topology.device_at({.data = 1}) == 6);
  CHECK(topology.device_at({.pipeline = 1}) == 30);
  CHECK(topology.coordinates(119) == Coordinates{.tensor = 1, .context = 2, .data = 4, .pipeline = 3});
}

TEST_CASE("pipeline groups part the devices and differ only in the pipeline rank", "[unit]") {
  const Topology topology({.tensor = 2, .context = 1, .data = 3, .pipeline = 5}, 1, 0);
  std::multiset<int> members;
  for (int device = 0; device < topology.devices(); ++device) {
    const std::vector<int> group = topology.pipeline_group(device);
    REQUIRE(group.size() == 5);
    for (int rank = 0; rank < 5; ++rank) {
      Coordinates expected = topology.coordinates(device);
      expected.pipeline = rank;
      CHECK(topology.coordinates(group[static_cast<std::size_t>(rank)]) == expected);
    }
    CHECK(group[static_cast<std::size_t>(topology.coordinates(device).pipeline)] == device);
    if (topology.coordinates(device).pipeline == 0) members.insert(group.begin(), group.end());
  }
  CHECK(members.size() == 30);
  CHECK(std::set<int>(members.begin(), members.end()).size() == 30);
}

TEST_CASE("processes drive equal runs of consecutive devices", "[unit]") {
  const int processes = GENERATE(1, 2, 3, 6);
  std::vector<int> all;
  for (int process = 0; process < processes; ++process) {
    const Topology topology({.data = 2, .pipeline = 3}, processes, process);
    CHECK(topology.devices_per_process() == 6 / processes);
    for (const int device : topology.local_devices()) {
      CHECK(topology.process_of(device) == process);
      CHECK(topology.is_local(device));
      all.push_back(device);
    }
    CHECK(topology.is_local(0) == (process == 0));
  }
  std::vector<int> expected(6);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(all == expected);
}

TEST_CASE("a number of processes that does not divide the devices is refused with the numbers", "[unit]") {
  const std::string text = input_error_of({.data = 2, .pipeline = 3}, 4);
  CHECK(contains(text, "6 devices (tensor 1 x context 1 x data 2 x pipeline 3)"));
  CHECK(contains(text, "4 processes"));
  CHECK(contains(text, "divides 6"));
  CHECK_FALSE(input_error_of({.pipeline = 3}, 6).empty());  // more processes than devices
}

TEST_CASE("impossible parallel sizes are refused", "[unit]") {
  CHECK(contains(input_error_of({.pipeline = 0}, 1), "pipeline 0"));
  CHECK(contains(input_error_of({.tensor = -2}, 1), "tensor -2"));
  CHECK(contains(input_error_of({70000, 70000, 70000, 70000}, 1), "more devices than can be numbered"));
}

TEST_CASE("numbers outside the topology are errors of the program", "[unit]") {
  const Topology topology({.pipeline = 3}, 1, 0);
  CHECK_THROWS_AS(topology.coordinates(3), Error);
  CHECK_THROWS_AS(topology.coordinates(-1), Error);
  CHECK_THROWS_AS(topology.device_at({.pipeline = 3}), Error);
  CHECK_THROWS_AS(topology.device_at({.tensor = -1}), Error);
  CHECK_THROWS_AS(topology.pipeline_group(3), Error);
  CHECK_THROWS_AS(Topology({.pipeline = 2}, 2, 2), Error);
  CHECK_THROWS_AS(Topology({.pipeline = 2}, 0, 0), Error);
}

}  // namespace slimpipe::comm
