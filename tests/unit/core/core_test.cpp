#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "slimpipe/core/check.h"
#include "slimpipe/core/counted.h"
#include "slimpipe/core/random.h"
#include "slimpipe/core/split_float.h"
#include "slimpipe/core/stop.h"
#include "slimpipe/core/tensor.h"

#include "support/catch.h"

namespace slimpipe {

TEST_CASE("bf16 rounds to nearest even and keeps NaN and infinity", "[unit]") {
  CHECK(float(BFloat16(1.0F)) == 1.0F);
  CHECK(BFloat16(1.0F + 0x1p-8F).bits == BFloat16(1.0F).bits);           // tie goes to the even neighbour
  CHECK(BFloat16(1.0F + 3 * 0x1p-8F).bits == BFloat16(1.0F).bits + 2U);  // tie, odd below
  CHECK(std::isnan(float(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isinf(float(BFloat16(std::numeric_limits<float>::infinity()))));
  CHECK(std::isinf(float(BFloat16(std::numeric_limits<float>::max()))));
}

TEST_CASE("a split value joins to the same bits, and its weight is the nearest bf16 value", "[unit]") {
  const auto survives = [](std::uint32_t word) {
    return std::bit_cast<std::uint32_t>(join(split(std::bit_cast<float>(word)))) == word;
  };
  // Every lower half behind upper halves of all kinds: zeros, denormals, carries, the largest, infinity, NaN.
  for (const std::uint32_t upper : {0x0000U, 0x0001U, 0x007fU, 0x3f80U, 0x3fffU, 0x7f7fU, 0x7f80U, 0x7fffU,
                                    0x8000U, 0xbf81U, 0xff7fU, 0xff80U, 0xffffU}) {
    bool all = true;
    for (std::uint32_t lower = 0; lower <= 0xffffU; ++lower) all = all && survives(upper << 16 | lower);
    INFO("upper half " << upper);
    CHECK(all);
  }
  CHECK(float(split(1.0F).weight) == 1.0F);
  CHECK(split(1.0F).remainder == 0);
  CHECK(float(split(1.0F + 0x1p-8F).weight) == 1.0F + 0x1p-7F);  // a tie goes away from zero
  CHECK(float(split(-1.0F - 0x1p-8F).weight) == -1.0F - 0x1p-7F);
  CHECK(float(split(1.0F + 0x1p-9F).weight) == 1.0F);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto value = static_cast<float>(random_normal(5, {RandomStream::Use::kTest, 9}, i));
    CHECK(split(value).weight.bits == BFloat16(value).bits);  // none of these is a tie
  }
}

TEST_CASE("a failed check names expression, file and values", "[unit]") {
  const int rows = -1;
  try {
    SLIMPIPE_CHECK(rows > 0, "rows is {}", rows);
    FAIL("not reached");
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(text.find("rows > 0") != std::string::npos);
    CHECK(text.find("core_test.cpp:") != std::string::npos);
    CHECK(text.find("rows is -1") != std::string::npos);
  }
}

TEST_CASE("one thing is told in the singular, none and many in the plural", "[unit]") {
  CHECK(counted(1, "device") == "1 device");
  CHECK(counted(0, "device") == "0 devices");
  CHECK(counted(2, "process", "es") == "2 processes");
}

TEST_CASE("tensor views keep strides and refuse what is out of range", "[unit]") {
  std::array<float, 12> data{};
  const Tensor matrix(data.data(), DType::kF32, {3, 4});
  const Tensor part = matrix.rows(1, 3).columns(1, 3);
  CHECK(part.as<float>() == data.data() + 5);
  CHECK(part.stride(0) == 4);
  CHECK_FALSE(part.contiguous());
  CHECK(matrix.reshape({2, 6}).contiguous());
  CHECK_THROWS_AS(part.reshape({4}), Error);
  CHECK_THROWS_AS(matrix.rows(2, 4), Error);
  CHECK_THROWS_AS(matrix.as<BFloat16>(), Error);
  CHECK(matrix.describe() == "fp32[3, 4]");
}

TEST_CASE("random values are functions of seed, stream and index", "[unit]") {
  const RandomStream stream{RandomStream::Use::kTest, 7};
  std::set<std::uint64_t> seen;
  double mean = 0;
  double square = 0;
  constexpr int kCount = 20000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    seen.insert(random_u64(3, stream, i));
    const double x = random_normal(3, stream, i);
    mean += x / kCount;
    square += x * x / kCount;
  }
  CHECK(seen.size() == kCount);
  CHECK(std::abs(mean) < 0.03);
  CHECK(std::abs(square - 1) < 0.05);
  CHECK(random_u64(3, stream, 5) == random_u64(3, stream, 5));
  CHECK(random_u64(4, stream, 5) != random_u64(3, stream, 5));
}

TEST_CASE("Philox 4x32-10 meets its published known answers", "[unit]") {
  // Zero key and counter, from the test vectors of the Random123 paper's authors.
  const auto block = random_block(0, RandomStream{static_cast<RandomStream::Use>(0), 0}, 0);
  CHECK(block == std::array<std::uint32_t, 4>{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
}

TEST_CASE("memory that the system refuses is told as such", "[unit]") {
  FirstError first;
  CHECK(first.set(std::make_exception_ptr(std::bad_alloc()), {}));
  CHECK_THAT(first.report()->message, test::contains("out of host memory"));
  CHECK(first.report()->message == cause_of(std::bad_alloc()));
  CHECK(cause_of(Error("tensor w is gone")) == "tensor w is gone");
}

TEST_CASE("the first failure wins and wakes every wait", "[unit]") {
  FirstError first;
  int woken = 0;
  first.on_stop([&] { ++woken; });
  CHECK(first.set(std::make_exception_ptr(Error("tensor w is gone")),
                  {.rank = 1, .device = 2, .step = 0, .action = ""}));
  CHECK_FALSE(first.set(std::make_exception_ptr(Error("later")), {}));
  CHECK(woken == 1);
  first.on_stop([&] { ++woken; });
  CHECK(woken == 2);
  CHECK(first.report()->message == "tensor w is gone");
  CHECK(first.report()->site.device == 2);
  CHECK_THROWS_AS(StopToken(first).throw_if_stopped(), Stopped);
}

TEST_CASE("a lack of host memory is told in words", "[unit]") {
  FirstError first;
  first.set(std::make_exception_ptr(std::bad_alloc()), {});
  CHECK(first.report()->message == "this process is out of host memory");
  CHECK(is_out_of_host_memory(std::bad_alloc()));
  CHECK(is_out_of_host_memory(OutOfHostMemory("of device 1")));
  CHECK_FALSE(is_out_of_host_memory(Error("no memory of it")));
}

}  // namespace slimpipe
