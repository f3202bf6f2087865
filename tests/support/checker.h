// Whether the tests run under a checker, where a kernel takes ten to a hundred times as long: fewer repetitions will do.
#ifndef CGR_TESTS_SUPPORT_CHECKER_H
#define CGR_TESTS_SUPPORT_CHECKER_H

#include <cstdlib>

namespace cgr_test {

inline bool UnderChecker() { return std::getenv("CGR_UNDER_CHECKER") != nullptr; } // tools/gpu/run_tests.sh sets it

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_CHECKER_H
