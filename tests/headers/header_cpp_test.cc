// What header_cpp11.cc checks, each part as a test.
#include <gtest/gtest.h>

#include "tests/headers/check.h"

#define PART(name, what) \
  int name##_in_cpp11(); \
  TEST(HeadersInCpp11, name) { EXPECT_EQ(name##_in_cpp11(), 0) << what; }
CGR_TEST_PARTS(PART)
PART(first, "each header first in a translation unit")
PART(braced, "_INIT macros as braced initialisers")
