#include "slimpipe/train/session.h"

#include "support/catch.h"
#include "support/equality_matrix.h"

namespace slimpipe::test {
namespace {

void check_cases(const std::vector<MatrixCase>& cases) {
  MatrixReferences references;
  for (const MatrixCase& c : cases) {
    for (const std::string& problem : check_matrix_case(c, {}, references)) FAIL_CHECK(problem);
  }
  CHECK_FALSE(cases.empty());
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
  std::vector<MatrixCase> cases;
  for (MatrixCase c : matrix_cases({1, 2, 4})) {
    if (c.microbatches != 2 || (c.slices != 1 && c.slices != 4)) continue;
    c.dtype = config::ComputeType::kBf16;
    cases.push_back(c);
  }
  check_cases(cases);
}

TEST_CASE("selective recomputation equals the run that keeps everything, to the bit", "[runtime]") {
  std::vector<MatrixCase> cases;
  for (MatrixCase c : matrix_cases({1, 2, 4})) {
    if (c.microbatches != 2 || c.warmup_slope != 2 || (c.slices != 1 && c.slices != 8)) continue;
    c.recompute = "selective";
    cases.push_back(c);
    c.dtype = config::ComputeType::kBf16;
    cases.push_back(c);
  }
  check_cases(cases);
}

}  // namespace slimpipe::test
