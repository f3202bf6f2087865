// The division by a tile's size (interop/fa3/format.h) equals integer division, for every number below 2^31.
#include "interop/fa3/format.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

void Check(int64_t number, uint32_t by) {
  if (number >= 0 && number <= INT32_MAX) {
    ASSERT_EQ(cgr__fa3_quotient(int32_t(number), cgr__fa3_divide_by(by)), number / by) << number << " / " << by;
  }
}

// A wrong quotient shows at a multiple or right before it, and first at a large one.
TEST(Fa3Divider, DividesAroundMultiples) {
  for (uint32_t by = 2; by <= 1024 && !HasFatalFailure(); by++)
    for (int64_t quotient = 0; quotient < 200; quotient++)
      for (int64_t multiple : { quotient * by, (INT32_MAX / by - quotient) * int64_t(by) })
        for (int64_t number = multiple - 1; number <= multiple + 1; number++)
          Check(number, by);
}

TEST(Fa3Divider, DividesAnyNumbers) {
  SeededRandom random;
  for (int repeat = 0; repeat < 200000 && !HasFatalFailure(); repeat++)
    Check(int64_t(random.Bits() >> random.Pick(33, 60)), uint32_t(random.Pick32(2, random.OneIn(2) ? 512 : INT32_MAX)));
}

} // namespace
} // namespace cgr_test
