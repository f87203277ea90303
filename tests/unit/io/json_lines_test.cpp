#include "slimpipe/io/json_lines.h"

#include <cstdlib>
#include <limits>

#include "slimpipe/core/check.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

using test::contains;
using test::message_of;
using test::read_bytes;
using test::ScratchFolder;
using test::write_bytes;

TEST_CASE("an object is one line of JSON in its own order", "[unit]") {
  const double inf = std::numeric_limits<double>::infinity();
  const JsonObject object = {
      {"z", 0.1},
      {"a", std::numeric_limits<std::int64_t>::max()},
      {"text", std::string("line\n\"quoted\" \x01")},
      {"none", nullptr},
      {"list", std::vector<double>{1.5, inf, -inf}},
      {"nan", std::numeric_limits<double>::quiet_NaN()},
      {"table", JsonTable{{"y", 1}, {"b", inf}}},
      {"tables", std::vector<JsonTable>{{{"k", 2}}, {}}},
  };
  CHECK(to_json(object) ==
        R"({"z":0.1,"a":9223372036854775807,"text":"line\n\"quoted\" \u0001","none":null,)"
        R"("list":[1.5,null,null],"nan":null,"table":{"y":1,"b":null},"tables":[{"k":2},{}]})");
  CHECK(to_json({}) == "{}");
}

TEST_CASE("doubles are written so that they read back the same", "[unit]") {
  for (const double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, -0.1, 123456789.125}) {
    const std::string text = to_json({{"x", value}});
    CHECK(std::strtod(text.c_str() + 5, nullptr) == value);
  }
}

TEST_CASE("whole numbers of a table are integers as far as a double counts", "[unit]") {
  const double limit = 9007199254740992;  // 2^53
  CHECK(to_json({{"t", JsonTable{{"device", 0}, {"bytes", 5368709120}, {"less", -3}, {"ms", 2.5}}}}) ==
        R"({"t":{"device":0,"bytes":5368709120,"less":-3,"ms":2.5}})");
  CHECK(to_json({{"t", JsonTable{{"below", limit - 1}, {"negative", 1 - limit}}}}) ==
        R"({"t":{"below":9007199254740991,"negative":-9007199254740991}})");
  CHECK(to_json({{"t", JsonTable{{"at", limit}, {"beyond", 1e300}}}}) ==
        R"({"t":{"at":9.007199254740992e+15,"beyond":1e+300}})");
}

TEST_CASE("text that is not UTF-8 is replaced, not thrown at", "[unit]") {
  CHECK(to_json({{"x", std::string("a\xff")}}) == "{\"x\":\"a\xef\xbf\xbd\"}");
}

TEST_CASE("every line is in the file once write returns, and a second writer goes on after it", "[unit]") {
  const ScratchFolder folder;
  const auto path = folder / "metrics.jsonl";
  JsonLinesWriter first(path);
  first.write({{"step", std::int64_t{1}}});
  CHECK(read_bytes(path) == "{\"step\":1}\n");
  JsonLinesWriter second(path);
  second.write({{"step", std::int64_t{2}}});
  CHECK(read_bytes(path) == "{\"step\":1}\n{\"step\":2}\n");
}

TEST_CASE("an unfinished last line is removed before the next is appended", "[unit]") {
  const ScratchFolder folder;
  const auto path = folder / "metrics.jsonl";
  const std::string whole = "{\"step\":1}\n";
  const std::string torn = GENERATE(std::string("{\"st"), std::string(10000, 'x'), std::string());
  write_bytes(path, whole + torn);
  JsonLinesWriter(path).write({{"step", std::int64_t{2}}});
  CHECK(read_bytes(path) == whole + "{\"step\":2}\n");

  write_bytes(path, "torn");
  JsonLinesWriter(path).write({});
  CHECK(read_bytes(path) == "{}\n");
}

TEST_CASE("a line that cannot be written is an error with file and reason", "[unit]") {
  CHECK_THAT(message_of<Error>([] {
               JsonLinesWriter("/dev/full").write({{"x", 1.0}});
             }),
             contains("/dev/full") && contains("No space left on device"));
  const ScratchFolder folder;
  CHECK_THAT(message_of<Error>([&] { const JsonLinesWriter writer(folder / "none/m.jsonl"); }),
             contains("none/m.jsonl") && contains("No such file"));
}

}  // namespace slimpipe::io
