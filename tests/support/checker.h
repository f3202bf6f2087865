// Whether the tests run under a checker, where a kernel takes ten to a hundred times as long: fewer repetitions will do.
#pragma once

#include <cstdlib>

namespace cgr_test {

inline bool UnderChecker() { return std::getenv("CGR_UNDER_CHECKER") != nullptr; } // tools/gpu/run_tests.sh sets it

} // namespace cgr_test
