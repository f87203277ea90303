#include "slimpipe/device/arena.h"

#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "slimpipe/core/random.h"

#include "support/catch.h"

namespace slimpipe::device {

namespace {

std::int64_t offset_between(const void* base, const void* address) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) -
                                   reinterpret_cast<std::uintptr_t>(base));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::int64_t live_in(const Arena& arena, Scope scope) {
  return arena.stats().live[static_cast<std::size_t>(scope)];
}
std::int64_t peak_of(const Arena& arena, Scope scope) {
  return arena.stats().peak[static_cast<std::size_t>(scope)];
}

}  // namespace

TEST_CASE("an allocation is aligned, writable and lies in none other", "[unit]") {
  Arena arena({.owner = "device 0"});
  std::vector<std::pair<unsigned char*, std::int64_t>> blocks;
  for (const std::int64_t bytes : {1, 63, 64, 65, 1000, 4096, 100000}) {
    auto* data = static_cast<unsigned char*>(arena.allocate(Scope::kWorkspace, bytes, "block"));
    CHECK(reinterpret_cast<std::uintptr_t>(data) % Arena::kAlignment == 0);
    std::memset(data, static_cast<int>(blocks.size() + 1), static_cast<std::size_t>(bytes));
    blocks.emplace_back(data, bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [data, bytes] = blocks[i];
    CHECK(data[0] == i + 1);
    CHECK(data[bytes - 1] == i + 1);
    arena.free(data);
  }
  CHECK(arena.stats().total_live == 0);
}

TEST_CASE("allocations of zero bytes have addresses of their own", "[unit]") {
  Arena arena({.owner = "device 0"});
  void* first = arena.allocate(Scope::kInput, 0, "none");
  void* second = arena.allocate(Scope::kInput, 0, "none");
  CHECK(first != nullptr);
  CHECK(first != second);
  arena.free(first);
  arena.free(second);
}

TEST_CASE("freed memory is used again from the lowest address that fits", "[unit]") {
  Arena arena({.owner = "device 0"});
  void* a = arena.allocate(Scope::kWorkspace, 128, "a");
  void* b = arena.allocate(Scope::kWorkspace, 64, "b");
  void* c = arena.allocate(Scope::kWorkspace, 256, "c");
  void* d = arena.allocate(Scope::kWorkspace, 64, "d");
  arena.free(a);
  arena.free(c);
  CHECK(arena.allocate(Scope::kWorkspace, 200, "fits only where c was") == c);
  CHECK(arena.allocate(Scope::kWorkspace, 100, "fits where a was") == a);
  CHECK(arena.stats().extent == 512);
  static_cast<void>(b);
  static_cast<void>(d);
}

TEST_CASE("neighbouring holes become one, in whatever order they are freed", "[unit]") {
  const std::vector<std::vector<std::size_t>> orders = {
      {0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}};
  for (const auto& order : orders) {
    Arena arena({.owner = "device 0"});
    std::array<void*, 3> blocks{};
    for (void*& block : blocks) block = arena.allocate(Scope::kWorkspace, 64, "part");
    void* fence = arena.allocate(Scope::kWorkspace, 64, "fence");
    for (const std::size_t i : order) arena.free(blocks[i]);
    CHECK(arena.allocate(Scope::kWorkspace, 192, "whole") == blocks[0]);
    CHECK(arena.stats().extent == 256);
    arena.free(fence);
  }
}

TEST_CASE("peaks are counted by scope and can be started anew", "[unit]") {
  Arena arena({.owner = "device 0"});
  void* weights = arena.allocate(Scope::kWeights, 1000, "w");  // 1024
  void* saved = arena.allocate(Scope::kSavedActivations, 64, "x");
  arena.free(saved);
  void* scratch = arena.allocate(Scope::kWorkspace, 128, "s");
  CHECK(peak_of(arena, Scope::kWeights) == 1024);
  CHECK(peak_of(arena, Scope::kSavedActivations) == 64);
  CHECK(live_in(arena, Scope::kSavedActivations) == 0);
  CHECK(arena.stats().total_peak == 1024 + 128);
  CHECK(arena.stats().total_live == 1024 + 128);
  arena.free(scratch);
  arena.reset_peaks();
  CHECK(arena.stats().total_peak == 1024);
  CHECK(peak_of(arena, Scope::kWorkspace) == 0);
  CHECK(peak_of(arena, Scope::kWeights) == 1024);
  arena.free(weights);
}

TEST_CASE("an allocation moves to another scope without moving in memory", "[unit]") {
  Arena arena({.owner = "device 0"});
  Buffer message(arena, Scope::kTransfer, 256, "message");
  message.rescope(Scope::kSavedActivations);
  CHECK(live_in(arena, Scope::kTransfer) == 0);
  CHECK(peak_of(arena, Scope::kTransfer) == 256);
  CHECK(live_in(arena, Scope::kSavedActivations) == 256);
  CHECK(peak_of(arena, Scope::kSavedActivations) == 256);
  CHECK(arena.stats().total_peak == 256);
  CHECK(arena.live(Scope::kTransfer).empty());
  REQUIRE(arena.live(Scope::kSavedActivations).size() == 1);
  CHECK(contains(arena.live(Scope::kSavedActivations)[0], "message (saved_activations, 256"));
  message.reset();
  CHECK(live_in(arena, Scope::kSavedActivations) == 0);
}

TEST_CASE("what goes over the limit names tensor, scope, numbers and the table", "[unit]") {
  Arena arena({.owner = "device 3", .limit = 1024});
  const Buffer weights(arena, Scope::kWeights, 512, "embedding");
  CHECK_NOTHROW(Buffer(arena, Scope::kWorkspace, 512, "exactly what is left"));
  try {
    static_cast<void>(arena.allocate(Scope::kSavedActivations, 513, "layer 4 gate_up"));
    FAIL("not reached");
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    INFO(text);
    CHECK(contains(text, "device 3"));
    CHECK(contains(text, "layer 4 gate_up needs 513 bytes (saved_activations)"));
    CHECK(contains(text, "512 bytes are live and the limit is 1024"));
    CHECK(contains(text, "weights"));
    CHECK(contains(text, "\n  total "));
    CHECK(text.back() != '\n');
  }
  CHECK(arena.stats().total_live == 512);
}

TEST_CASE("tensors that do not fit are told with type and shape", "[unit]") {
  Arena arena({.owner = "device 3", .limit = 64});
  const Tensor hidden(nullptr, DType::kBF16, {16, 8});
  const Tensor lse(nullptr, DType::kF32, {16});
  const auto text_of = [](const auto& allocate) -> std::string {
    try {
      allocate();
    } catch (const OutOfMemory& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  const std::string one = text_of([&] { return Buffer(arena, Scope::kTransfer, hidden, "message"); });
  INFO(one);
  CHECK(contains(one, "message needs 256 bytes (transfer: bf16[16, 8]), but 0 bytes are live"));
  const std::string two = text_of([&] {
    return Buffer(arena, Scope::kWorkspace, 320, "saved", std::array{hidden, lse});
  });
  INFO(two);
  CHECK(contains(two, "saved needs 320 bytes (workspace: bf16[16, 8], fp32[16]), but"));
}

TEST_CASE("an absurd size is refused, with a limit and without", "[unit]") {
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{1024}}) {
    Arena arena({.owner = "device 0", .limit = limit});
    CHECK_THROWS_AS(
        static_cast<void>(arena.allocate(Scope::kWorkspace, std::numeric_limits<std::int64_t>::max(), "x")),
        OutOfMemory);
    CHECK_THROWS_AS(static_cast<void>(arena.allocate(Scope::kWorkspace, -1, "x")), Error);
  }
}

TEST_CASE("only the address of a live allocation can be freed or rescoped", "[unit]") {
  Arena arena({.owner = "device 0"});
  int foreign = 0;
  auto* data = static_cast<std::byte*>(arena.allocate(Scope::kWorkspace, 256, "x"));
  CHECK_NOTHROW(arena.free(nullptr));
  CHECK_THROWS_AS(arena.free(&foreign), Error);
  CHECK_THROWS_AS(arena.free(data + 64), Error);
  CHECK_THROWS_AS(arena.rescope(&foreign, Scope::kInput), Error);
  arena.free(data);
  CHECK_THROWS_AS(arena.free(data), Error);
}

TEST_CASE("a plan gives the offsets and the peaks of the real thing", "[unit]") {
  Arena real({.owner = "real"});
  Arena plan({.owner = "plan", .plan_only = true});
  const RandomStream stream{RandomStream::Use::kTest, 11};
  void* real_base = real.allocate(Scope::kWeights, 64, "base");
  void* plan_base = plan.allocate(Scope::kWeights, 64, "base");
  CHECK(plan_base != nullptr);
  std::vector<std::pair<void*, void*>> live;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::uint64_t word = random_u64(5, stream, i);
    if (!live.empty() && word % 16 < 7) {
      const auto victim = live.begin() + static_cast<std::ptrdiff_t>((word >> 8) % live.size());
      real.free(victim->first);
      plan.free(victim->second);
      live.erase(victim);
      continue;
    }
    const auto bytes = static_cast<std::int64_t>((word >> 8) % 5000);
    const auto scope = static_cast<Scope>((word >> 32) % kNumScopes);
    live.emplace_back(real.allocate(scope, bytes, "x"), plan.allocate(scope, bytes, "x"));
    REQUIRE(offset_between(real_base, live.back().first) == offset_between(plan_base, live.back().second));
  }
  CHECK(live.size() > 100);
  CHECK(real.stats().live == plan.stats().live);
  CHECK(real.stats().peak == plan.stats().peak);
  CHECK(real.stats().total_peak == plan.stats().total_peak);
  CHECK(real.stats().extent == plan.stats().extent);
  for (const auto& [in_real, in_plan] : live) {
    real.free(in_real);
    plan.free(in_plan);
  }
  CHECK(real.stats().total_live == 64);
}

TEST_CASE("a plan may be far larger than the machine", "[unit]") {
  Arena plan({.owner = "plan", .plan_only = true});
  const std::int64_t huge = std::int64_t{1} << 45;
  const Buffer first(plan, Scope::kWeights, huge, "weights");
  const Buffer second(plan, Scope::kOptimizer, huge, "moments");
  CHECK(plan.stats().total_peak == 2 * huge);
}

TEST_CASE("a buffer frees what it owns once, moved or not", "[unit]") {
  Arena arena({.owner = "device 0"});
  {
    Buffer first(arena, Scope::kWorkspace, 64, "first");
    Buffer second(std::move(first));
    CHECK_FALSE(first);  // NOLINT(bugprone-use-after-move): the state after a move is what is tested
    CHECK(second);
    Buffer third(arena, Scope::kWorkspace, 64, "third");
    third = std::move(second);
    CHECK(arena.stats().total_live == 64);
  }
  CHECK(arena.stats().total_live == 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("the address sanitizer knows what is not allocated", "[unit]") {
  Arena arena({.owner = "device 0"});
  auto* first = static_cast<char*>(arena.allocate(Scope::kWorkspace, 100, "first"));
  auto* second = static_cast<char*>(arena.allocate(Scope::kWorkspace, 64, "second"));
  CHECK_FALSE(__asan_address_is_poisoned(first + 99));
  CHECK(__asan_address_is_poisoned(first + 100));
  CHECK_FALSE(__asan_address_is_poisoned(second));
  CHECK(__asan_address_is_poisoned(second + 64));
  arena.free(first);
  CHECK(__asan_address_is_poisoned(first));
  CHECK(arena.allocate(Scope::kWorkspace, 100, "again") == first);
  CHECK_FALSE(__asan_address_is_poisoned(first));
}
#endif

TEST_CASE("every scope has a name of its own", "[unit]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kNumScopes; ++i) names.insert(name_of(static_cast<Scope>(i)));
  CHECK(names.size() == kNumScopes);
}

}  // namespace slimpipe::device
