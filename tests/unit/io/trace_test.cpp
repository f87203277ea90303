#include "slimpipe/io/trace.h"

#include "slimpipe/core/check.h"

#include "support/catch.h"
#include "support/file_fixtures.h"

namespace slimpipe::io {

TEST_CASE("a trace names its process and tracks and lists every span", "[unit]") {
  const test::ScratchFolder folder;
  write_trace(folder / "t.json",
              {{.name = "F m0 s1", .category = "forward", .track = 3, .start_us = 1.25, .duration_us = 2},
               {.name = "odd \"name\"\n\xff",
                .category = "backward",
                .track = 2,
                .start_us = 0,
                .duration_us = 0.0004}},
              7);
  CHECK(test::read_bytes(folder / "t.json") ==
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        R"({"name":"process_name","ph":"M","pid":7,"tid":0,"args":{"name":"process 7"}},)"
        "\n"
        R"({"name":"thread_name","ph":"M","pid":7,"tid":2,"args":{"name":"device 2"}},)"
        "\n"
        R"({"name":"thread_name","ph":"M","pid":7,"tid":3,"args":{"name":"device 3"}},)"
        "\n"
        R"({"name":"F m0 s1","cat":"forward","ph":"X","pid":7,"tid":3,"ts":1.250,"dur":2.000},)"
        "\n"
        "{\"name\":\"odd \\\"name\\\"\\n\xef\xbf\xbd\",\"cat\":\"backward\",\"ph\":\"X\",\"pid\":7,\"tid\":2,"
        "\"ts\":0.000,\"dur\":0.000}\n]}\n");
}

TEST_CASE("a trace without events is still a trace, and one that cannot be written an error", "[unit]") {
  const test::ScratchFolder folder;
  write_trace(folder / "t.json", {}, 0);
  CHECK(test::read_bytes(folder / "t.json").ends_with("\n]}\n"));
  CHECK_THROWS_AS(write_trace(folder / "none/t.json", {}, 0), Error);
}

}  // namespace slimpipe::io
