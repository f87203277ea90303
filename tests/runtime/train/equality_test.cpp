#include "slimpipe/train/session.h"

#include "support/catch.h"
#include "support/equality_matrix.h"

namespace slimpipe::test {
namespace {

void check_cases(const std::vector<MatrixCase>& all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::vector<MatrixCase> cases = some_of(all);
#else
  const std::vector<MatrixCase>& cases = all;
#endif
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
  check_cases(bf16_cases({1, 2, 4}));
}
TEST_CASE("selective recomputation equals the run that keeps everything, to the bit", "[runtime]") {
  check_cases(selective_cases({1, 2, 4}));
}

TEST_CASE("one device: several stages and split backwards equal the plain run", "[runtime]") {
  check_cases(interleaved_cases({1}));
}
TEST_CASE("two devices: several stages and split backwards equal the plain run", "[runtime]") {
  check_cases(interleaved_cases({2}));
}
TEST_CASE("four devices: several stages and split backwards equal the plain run", "[runtime]") {
  check_cases(interleaved_cases({4}));
}
TEST_CASE("bf16 with several stages and split backwards agrees to the bit, recomputed or not", "[runtime]") {
  check_cases(interleaved_bf16_cases({1, 2, 4}));
}

}  // namespace slimpipe::test
