// The public header compiles as C++ by itself (header_cpp.cc), and its tables are complete.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cgr/cgr.h"

int HeaderInCpp();

TEST(Header, InitialisersWorkInCpp) { EXPECT_EQ(HeaderInCpp(), 0); }

TEST(Header, EveryStatusHasANameAndAText) {
  std::set<int> numbers;
  std::set<std::string> texts;
#define CHECK_STATUS(name, number, text)                \
  EXPECT_EQ(static_cast<int>(name), number);            \
  EXPECT_EQ(std::string(cgr_status_name(name)), #name); \
  EXPECT_EQ(std::string(cgr_status_text(name)), text);  \
  EXPECT_TRUE(numbers.insert(number).second) << #name;  \
  EXPECT_TRUE(texts.insert(text).second) << #name;
  CGR_STATUS_LIST(CHECK_STATUS)
#undef CHECK_STATUS
  for (int unknown : { -1, 25, 1000, 0x7fffffff }) {
    EXPECT_NE(cgr_status_name(static_cast<cgr_status>(unknown)), nullptr);
    EXPECT_NE(cgr_status_text(static_cast<cgr_status>(unknown)), nullptr);
  }
}

TEST(Header, EveryReasonHasAName) {
  std::set<std::string> names;
  for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
    EXPECT_TRUE(names.insert(cgr_reason_name(static_cast<cgr_reason>(reason))).second) << reason;
  EXPECT_NE(cgr_reason_name(static_cast<cgr_reason>(99)), nullptr);
  EXPECT_NE(cgr_reason_name(static_cast<cgr_reason>(-1)), nullptr);
}

TEST(Header, DtypesHaveSizes) {
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_FP32), 4u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_FP16), 2u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_BF16), 2u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_FP8_E4M3), 1u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_I8), 1u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_I32), 4u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_I64), 8u);
  EXPECT_EQ(cgr_dtype_size(CGR_DTYPE_NONE), 0u);
  EXPECT_EQ(cgr_dtype_size(static_cast<cgr_dtype>(99)), 0u);
}
