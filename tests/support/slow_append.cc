#include "tests/support/slow_append.h"

namespace cgr_test {

#if CGR_TEST_CUDA
const cgr__kernel kSlowAppend = {
  "slow append", sizeof(cgr__append_args), cgr__kernel_append.host, test_append_slowly, nullptr, 0
};
#else
const cgr__kernel kSlowAppend = { "slow append", sizeof(cgr__append_args), cgr__kernel_append.host, nullptr, nullptr, 0 };
#endif

} // namespace cgr_test
