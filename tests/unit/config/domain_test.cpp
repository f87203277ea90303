#include "config/domain.h"

#include <cmath>

#include "slimpipe/config/load.h"
#include "slimpipe/core/check.h"

#include "config/bytes.h"
#include "config/source_text.h"
#include "support/catch.h"

namespace slimpipe::config {

TEST_CASE("numbers are read whole and within their range or not at all", "[unit]") {
  const Domain integers = Integers{1, 100};
  CHECK(parse(integers, "1") == Value(std::int64_t{1}));
  CHECK(parse(integers, "100") == Value(std::int64_t{100}));
  for (const std::string_view text : {"", "0", "101", "-1", "+1", " 1", "1 ", "1.0", "1e1", "0x1", "1_0",
                                      "64k", "99999999999999999999", "one"})
    CHECK_FALSE(parse(integers, text));

  const Domain numbers = Numbers{.low = 0, .high = 1, .low_open = true};
  CHECK(parse(numbers, "1e-4") == Value(1e-4));
  CHECK(parse(numbers, "1") == Value(1.0));
  for (const std::string_view text :
       {"", "0", "-0.0", "1.0001", "nan", "inf", "1e", "1e-4x", "0x1p-1", "1,5", "1e-999"})
    CHECK_FALSE(parse(numbers, text));
  CHECK_FALSE(parse(Numbers{}, "inf"));
  CHECK_FALSE(parse(Numbers{}, "1e999"));
  for (const std::string_view text : {"3.5e38", "1e300", "1e-39", "1e-320", "-1e-320"})
    CHECK_FALSE(parse(Numbers{.low = -1}, text));
  for (const std::string_view text : {"0", "3.4e38", "1.2e-38"}) CHECK(parse(Numbers{}, text));
  for (const std::string_view text : {"1e-39", "-1e-320", "1e-999"})
    CHECK(remark(Numbers{}, text) == "; single precision holds no less than 1.2e-38, besides 0");
  for (const std::string_view text : {"1e300", "1e999", "0", "-1", "1e-320x", ""})
    CHECK(remark(Numbers{}, text).empty());
  CHECK_FALSE(std::signbit(std::get<double>(*parse(Numbers{}, "-0"))));

  CHECK(parse(Unsigned{}, "18446744073709551615") == Value(~std::uint64_t{0}));
  CHECK_FALSE(parse(Unsigned{}, "18446744073709551616"));
  CHECK_FALSE(parse(Unsigned{}, "-1"));
}

TEST_CASE("only true and false are truth values", "[unit]") {
  CHECK(parse(Flags{}, "true") == Value(true));
  CHECK(parse(Flags{}, "false") == Value(false));
  for (const std::string_view text : {"", "True", "yes", "on", "1", "0"}) CHECK_FALSE(parse(Flags{}, text));
}

TEST_CASE("texts are one clean line", "[unit]") {
  CHECK(parse(Text{}, "") == Value(std::string()));
  CHECK(parse(Text{}, "données/ß.tok") == Value(std::string("données/ß.tok")));
  using std::string_view_literals::operator""sv;
  for (const std::string_view text : {"a\nb"sv, "a\tb"sv, "a\0b"sv, "\xff"sv, "\xc0\xaf"sv, "\xed\xa0\x80"sv})
    CHECK_FALSE(parse(Text{}, text));
}

TEST_CASE("bytes have decimal and binary units and never overflow", "[unit]") {
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("123456") == 123456);
  CHECK(parse_bytes("7B") == 7);
  CHECK(parse_bytes("512MiB") == std::int64_t{512} << 20);
  CHECK(parse_bytes("8 GB") == 8'000'000'000);
  CHECK(parse_bytes("8388607TiB") == std::int64_t{8388607} << 40);
  CHECK(parse_bytes("9223372036854775807") == 9223372036854775807);
  for (const std::string_view text : {"", "MiB", "-1", "1.5GiB", "8388608TiB", "9223372036854775808", "1 ",
                                      "1  kB", " 1", "1mb", "1KB ", "12 parsecs"})
    CHECK_THROWS_AS(parse_bytes(text), InputError);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, std::int64_t{1024},
                                   std::int64_t{1536} << 20, std::int64_t{1} << 62})
    CHECK(bytes_from_text(bytes_to_text(bytes)) == bytes);
  CHECK(bytes_to_text(std::int64_t{1536} << 20) == "1536MiB");
}

TEST_CASE("defects of a text are found with their place", "[unit]") {
  CHECK_FALSE(first_defect("plain, ß, 漢, 😀\n\t\r"));
  const auto at = [](std::string_view text) { return first_defect(text).value().offset; };
  CHECK(at("ab\xff") == 2);
  CHECK(at("ab\xe6\xbc") == 2);        // cut off
  CHECK(at("\xf4\x90\x80\x80") == 0);  // above U+10FFFF
  CHECK(at("\xe0\x80\x80") == 0);      // overlong
  CHECK(at(std::string_view("a\0", 2)) == 1);
  CHECK(at("a\x1b[31m") == 1);
  CHECK(line_of("a\nb\nc", 4) == 3);
  CHECK(printable("a\x1b\xff") == "a\\x1b\\xff");
  CHECK(printable(std::string(1000, 'x')).size() < 80);
}

}  // namespace slimpipe::config
