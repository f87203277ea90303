#include <set>

#include "slimpipe/train/session.h"

#include "support/catch.h"
#include "support/equality_matrix.h"

namespace slimpipe::test {
namespace {

void check_cases(const std::vector<MatrixCase>& all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::vector<MatrixCase> cases = every_seventh(all);
#else
  const std::vector<MatrixCase>& cases = all;
#endif
  MatrixReferences references;
  for (const MatrixCase& c : cases) {
    for (const std::string& problem : check_matrix_case(c, {}, references)) FAIL_CHECK(problem);
  }
  CHECK_FALSE(cases.empty());
}

/// Each option of the matrix that one of the cases has, also those of sliced sequences apart.
std::set<std::string> options_met(const std::vector<MatrixCase>& cases) {
  std::set<std::string> met;
  for (const MatrixCase& c : cases) {
    const std::string_view dtype = c.dtype == config::ComputeType::kFp32 ? "fp32" : "bf16";
    met.insert({fmt::format("{} slope={}", schedule::name_of(c.kind), c.warmup_slope),
                fmt::format("p={}", c.pipeline), fmt::format("n={}", c.slices),
                fmt::format("m={}", c.microbatches), c.tied ? "tied" : "untied", std::string(dtype)});
    if (c.slices > 1) met.insert({fmt::format("sliced p={}", c.pipeline), fmt::format("sliced {}", dtype)});
  }
  return met;
}

}  // namespace

TEST_CASE("one device: every schedule equals the plain run", "[runtime]") {
  check_cases(matrix_cases({1}));
}
TEST_CASE("two devices: every schedule equals the plain run", "[runtime]") {
  check_cases(matrix_cases({2}));
}
TEST_CASE("four devices: every schedule equals the plain run", "[runtime]") {
  check_cases(matrix_cases({4}));
}
TEST_CASE("bf16: schedules of equal slices agree to the bit", "[runtime]") {
  check_cases(bf16_cases({1, 2, 4}));
}
TEST_CASE("selective recomputation equals the run that keeps everything, to the bit", "[runtime]") {
  check_cases(selective_cases({1, 2, 4}));
}

TEST_CASE("the cases that run under sanitizers have every option of the matrix", "[runtime]") {
  for (const std::vector<MatrixCase>& all : {matrix_cases({1}), matrix_cases({2}), matrix_cases({4}),
                                             bf16_cases({1, 2, 4}), selective_cases({1, 2, 4})}) {
    const std::vector<MatrixCase> chosen = every_seventh(all);
    INFO(chosen.size() << " of " << all.size() << " cases, the first of them " << chosen.at(0).name());
    CHECK(options_met(chosen) == options_met(all));
  }
}

}  // namespace slimpipe::test
