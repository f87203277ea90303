#include "slimpipe/data/batch_source.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "slimpipe/core/check.h"

#include "data/permutation.h"
#include "support/catch.h"
#include "support/file_fixtures.h"
#include "unit/data/token_file_fixtures.h"

namespace slimpipe::data {

using test::contains;
using test::message_of;
using test::ScratchFolder;

namespace {

/// A file in which a token's value is its place.
std::shared_ptr<const TokenFile> counting_file(const ScratchFolder& folder, std::int64_t tokens) {
  test::write_counting_file(folder / "t", tokens);
  return std::make_shared<TokenFile>(TokenFile::open(folder / "t"));
}

std::int64_t count_valid(const Sample& sample) {
  return std::ranges::count_if(sample.targets, [](std::int32_t target) { return target >= 0; });
}

}  // namespace

TEST_CASE("a permutation maps any range onto itself and depends on its key", "[unit]") {
  for (const std::int64_t n : {1, 2, 3, 7, 64, 1000, 1025}) {
    INFO("n = " << n);
    std::vector<std::int64_t> image(static_cast<std::size_t>(n));
    for (std::int64_t x = 0; x < n; ++x) image[static_cast<std::size_t>(x)] = permute(42, n, x);
    std::vector<std::int64_t> sorted = image;
    std::ranges::sort(sorted);
    std::vector<std::int64_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    CHECK(sorted == all);
    if (n < 64) continue;
    std::int64_t moved = 0;
    std::int64_t differs = 0;
    for (std::int64_t x = 0; x < n; ++x) {
      moved += permute(42, n, x) != x ? 1 : 0;
      differs += permute(42, n, x) != permute(43, n, x) ? 1 : 0;
    }
    CHECK(moved > n * 9 / 10);
    CHECK(differs > n * 9 / 10);
  }
}

TEST_CASE("every order of a small range is about equally frequent over keys", "[unit]") {
  for (const std::int64_t n : {2, 3, 4}) {
    std::map<std::vector<std::int64_t>, int> orders;
    constexpr int kKeys = 4800;
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      std::vector<std::int64_t> order;
      for (std::int64_t x = 0; x < n; ++x) order.push_back(permute(key, n, x));
      ++orders[order];
    }
    const int factorial = n == 2 ? 2 : n == 3 ? 6 : 24;
    CHECK(static_cast<int>(orders.size()) == factorial);
    const double expected = static_cast<double>(kKeys) / factorial;
    for (const auto& [order, count] : orders) CHECK(std::abs(count - expected) < 5 * std::sqrt(expected));
  }
}

TEST_CASE("in file order samples follow each other and the last is padded", "[unit]") {
  const ScratchFolder folder;
  const BatchSource source(counting_file(folder, 11), {.sequence_length = 4});
  REQUIRE(source.samples_per_epoch() == 3);  // 10 targets
  CHECK(source.sample(0).inputs == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(source.sample(0).targets == std::vector<std::int32_t>{1, 2, 3, 4});
  CHECK(source.sample(1).inputs == std::vector<std::int32_t>{4, 5, 6, 7});
  CHECK(source.sample(2).inputs == std::vector<std::int32_t>{8, 9, 10, 0});
  CHECK(source.sample(2).targets == std::vector<std::int32_t>{9, 10, -1, -1});
  CHECK(source.sample(1).valid_tokens == 4);
  CHECK(source.sample(2).valid_tokens == 2);
  CHECK(source.sample(3).inputs == source.sample(0).inputs);
  CHECK_THROWS_AS(source.sample(-1), Error);
}

TEST_CASE("a range of the file is all that its samples show", "[unit]") {
  const ScratchFolder folder;
  const BatchSource source(counting_file(folder, 30),
                           {.sequence_length = 5, .first_token = 10, .end_token = 21});
  REQUIRE(source.samples_per_epoch() == 2);
  CHECK(source.sample(0).inputs.front() == 10);
  CHECK(source.sample(1).targets == std::vector<std::int32_t>{16, 17, 18, 19, 20});
}

TEST_CASE("the number of samples covers every target for any length and size", "[unit]") {
  const ScratchFolder folder;
  for (const std::int64_t tokens : {2, 3, 4, 5, 8, 9, 10, 17}) {
    const auto file = counting_file(folder, tokens);
    for (const std::int64_t length : {1, 2, 3, 4, 7, 16, 100}) {
      INFO(tokens << " tokens, length " << length);
      const BatchSource source(file, {.sequence_length = length});
      std::int64_t next = 1;
      for (std::int64_t i = 0; i < source.samples_per_epoch(); ++i) {
        for (const std::int32_t target : source.sample(i).targets) {
          if (target >= 0) CHECK(target == next++);
        }
      }
      CHECK(next == tokens);
    }
  }
}

TEST_CASE("shuffled, each epoch has every sample once, inside its window, in another order", "[unit]") {
  const ScratchFolder folder;
  constexpr std::int64_t kLength = 3;
  const auto file = counting_file(folder, 100 * kLength + 2);  // 101 samples, the last with one target
  const std::int64_t window = GENERATE(1, 2, 10, 101, 1000000);
  const BatchSource source(file, {.sequence_length = kLength, .shuffle_window = window, .seed = 5});
  const std::int64_t samples = source.samples_per_epoch();
  REQUIRE(samples == 101);
  std::vector<std::vector<std::int64_t>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < samples; ++i) {
      const std::int64_t index = source.sample(epoch * samples + i).inputs[0] / kLength;
      CHECK(index / window == i / window);
      order.push_back(index);
    }
    epochs.push_back(order);
    std::ranges::sort(order);
    for (std::int64_t i = 0; i < samples; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == i);
  }
  CHECK((epochs[0] == epochs[1]) == (window == 1));
  CHECK((epochs[1] == epochs[2]) == (window == 1));
  const BatchSource other(file, {.sequence_length = kLength, .shuffle_window = window, .seed = 6});
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < samples; ++i) order.push_back(other.sample(i).inputs[0] / kLength);
  CHECK((order == epochs[0]) == (window == 1));
}

TEST_CASE("valid tokens are what counting the targets gives", "[unit]") {
  const ScratchFolder folder;
  const std::int64_t window = GENERATE(1, 4, 1000);
  const BatchSource source(counting_file(folder, 48),
                           {.sequence_length = 5, .shuffle_window = window, .seed = 1});
  for (std::int64_t cursor = 0; cursor < 25; ++cursor) {
    std::int64_t total = 0;
    for (std::int64_t count = 0; count < 23; ++count) {
      REQUIRE(source.valid_tokens(cursor, count) == total);
      total += count_valid(source.sample(cursor + count));
    }
  }
}

TEST_CASE("a sample depends on its cursor only, whoever asks and in whatever order", "[unit]") {
  const ScratchFolder folder;
  const BatchSource source(counting_file(folder, 1000),
                           {.sequence_length = 7, .shuffle_window = 50, .seed = 9});
  constexpr std::int64_t kCursors = 300;
  std::vector<std::vector<std::int32_t>> expected;
  for (std::int64_t i = 0; i < kCursors; ++i) expected.push_back(source.sample(i).inputs);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < kCursors; ++i) {
        const std::int64_t cursor = (i * 101 + static_cast<std::int64_t>(t) * 37) % kCursors;
        if (source.sample(cursor).inputs != expected[static_cast<std::size_t>(cursor)]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("cursors far beyond any run still name samples", "[unit]") {
  const ScratchFolder folder;
  const BatchSource source(counting_file(folder, 100),
                           {.sequence_length = 7, .shuffle_window = 5, .seed = 9});
  CHECK(source.sample(std::numeric_limits<std::int64_t>::max()).inputs.size() == 7);
}

TEST_CASE("the order of samples is the one that earlier runs saw, so that they can be resumed", "[unit]") {
  const ScratchFolder folder;
  const BatchSource source(counting_file(folder, 11),
                           {.sequence_length = 1, .shuffle_window = 10, .seed = 1234});
  std::vector<std::int32_t> order;
  for (std::int64_t i = 0; i < 20; ++i) order.push_back(source.sample(i).inputs[0]);
  CHECK(order == std::vector<std::int32_t>{6, 4, 8, 3, 1, 9, 0, 7, 2, 5,  //
                                           5, 7, 1, 6, 4, 8, 2, 9, 0, 3});
}

TEST_CASE("a range without targets, or outside the file, is refused with the numbers", "[unit]") {
  const ScratchFolder folder;
  const auto file = counting_file(folder, 10);
  const auto problem_with = [&](std::int64_t first, std::int64_t end) {
    return message_of<InputError>([&] {
      const BatchSource source(file, {.sequence_length = 4, .first_token = first, .end_token = end});
    });
  };
  CHECK_THAT(problem_with(9, 10), contains("has 10 tokens; the range [9, 10)"));
  CHECK_THROWS_AS(BatchSource(counting_file(folder, 1), {.sequence_length = 4}), InputError);
  CHECK_THAT(problem_with(0, 11), contains("[0, 11)"));
  CHECK_THAT(problem_with(-1, 5), contains("[-1, 5)"));
  CHECK_THAT(problem_with(7, 3), contains("[7, 3)"));
}

TEST_CASE("the validation tail is whole samples and training keeps the rest", "[unit]") {
  const ScratchFolder folder;
  const auto file = counting_file(folder, 1003);
  const Split split = split_for_validation(*file, 10, 0.25);
  const BatchSource validation(file, {.sequence_length = 10, .first_token = split.train_end});
  CHECK(validation.samples_per_epoch() == 25);
  CHECK(validation.valid_tokens(0, 25) == 250);
  CHECK(split.train_end == 1003 - 251);
  CHECK(split_for_validation(*file, 10, 0).train_end == 1003);
  CHECK(split_for_validation(*file, 10, 1e-9).train_end == 1003 - 11);
  CHECK_THROWS_AS(split_for_validation(*file, 10, 1), Error);
  CHECK_THROWS_AS(split_for_validation(*file, 10, std::nan("")), Error);

  CHECK(split_for_validation(*file, 500, 0.5).train_end == 502);
  CHECK_THAT(message_of<InputError>([&] { (void)split_for_validation(*file, 501, 0.1); }),
             contains("has 1003 tokens") && contains("1004 tokens at least"));
}

TEST_CASE("sources of the same identity give the same samples, whatever holds the file", "[unit]") {
  const ScratchFolder folder;
  std::vector<std::int32_t> text(1000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * i % 251);
  test::write_token_file(folder / "a", 251, {text});
  test::write_token_file(folder / "b", 1 << 20, {text});  // four bytes a token
  const BatchSourceOptions options{.sequence_length = 16, .shuffle_window = 8, .seed = 3, .end_token = 900};
  const BatchSource a(std::make_shared<TokenFile>(TokenFile::open(folder / "a")), options);
  const BatchSource b(std::make_shared<TokenFile>(TokenFile::open(folder / "b")), options);
  CHECK(a.identity() == b.identity());
  CHECK(a.identity().samples_per_epoch() == a.samples_per_epoch());
  for (std::int64_t cursor = 0; cursor < 2 * a.samples_per_epoch(); ++cursor) {
    REQUIRE(a.sample(cursor).inputs == b.sample(cursor).inputs);
  }
  text[500] = 250;
  test::write_token_file(folder / "c", 251, {text});
  const BatchSource c(std::make_shared<TokenFile>(TokenFile::open(folder / "c")), options);
  CHECK_FALSE(a.identity() == c.identity());
}

}  // namespace slimpipe::data
