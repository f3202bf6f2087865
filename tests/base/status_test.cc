// Statuses: their numbers, which callers may have compiled in, names and texts.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cgr/cgr.h"

namespace {

const cgr_status kAll[] = {
#define VALUE(name, number, text) name,
  CGR_STATUS_LIST(VALUE)
#undef VALUE
};

// The numbers of version 0.2: a status keeps its number for ever, and new ones come after the last.
const char *const kByNumber[] = {
  "CGR_OK",
  "CGR_NOT_READY",
  "CGR_ERROR_NULL_POINTER",
  "CGR_ERROR_INVALID_STRUCT",
  "CGR_ERROR_INVALID_ENUM",
  "CGR_ERROR_INVALID_ARGUMENT",
  "CGR_ERROR_PAGE_OUT_OF_RANGE",
  "CGR_ERROR_ROW_CLOSED",
  "CGR_ERROR_ROW_REPEATED",
  "CGR_ERROR_TOO_MANY_REQUESTS",
  "CGR_ERROR_TOO_MANY_TOKENS",
  "CGR_ERROR_SEQUENCE_TOO_LONG",
  "CGR_ERROR_PAGES_MISSING",
  "CGR_ERROR_BUSY",
  "CGR_ERROR_STATE",
  "CGR_ERROR_UNSUPPORTED",
  "CGR_ERROR_OUT_OF_MEMORY",
  "CGR_ERROR_STALE_GRAPH",
  "CGR_ERROR_CAPTURE",
  "CGR_ERROR_CALLBACK",
  "CGR_ERROR_FALLBACK",
  "CGR_ERROR_EXPIRED",
  "CGR_ERROR_STEP",
  "CGR_ERROR_DEVICE",
  "CGR_ERROR_DEAD",
  "CGR_ERROR_NEWER_STRUCT",
  "CGR_ERROR_CHANGES_PENDING",
};

TEST(Status, NumbersAreThoseOfTheList) {
  int number = 0;
  for (const char *name : kByNumber)
    EXPECT_STREQ(cgr_status_name(static_cast<cgr_status>(number++)), name);
}

TEST(Status, NumbersNamesAndTextsAreUnique) {
  std::set<int> numbers;
  std::set<std::string> names, texts;
  for (cgr_status status : kAll) {
    EXPECT_TRUE(numbers.insert(status).second) << status;
    EXPECT_TRUE(names.insert(cgr_status_name(status)).second) << cgr_status_name(status);
    EXPECT_TRUE(texts.insert(cgr_status_text(status)).second) << cgr_status_text(status);
  }
  EXPECT_EQ(names.count(""), 0u);
  EXPECT_EQ(texts.count(""), 0u);
}

TEST(Status, NamesAndTextsAreThoseOfTheList) {
#define CHECK_ENTRY(name, number, text)       \
  EXPECT_EQ(static_cast<int>(name), number);  \
  EXPECT_STREQ(cgr_status_name(name), #name); \
  EXPECT_STREQ(cgr_status_text(name), text);
  CGR_STATUS_LIST(CHECK_ENTRY)
#undef CHECK_ENTRY
}

TEST(Status, UnknownNumbersHaveANameAndATextOfTheirOwn) {
  for (int number : { -1, 1000, 0x7ffffffe, static_cast<int>(CGR_STATUS_MAX_) }) {
    const char *name = cgr_status_name(static_cast<cgr_status>(number));
    const char *text = cgr_status_text(static_cast<cgr_status>(number));
    ASSERT_NE(name, nullptr);
    ASSERT_NE(text, nullptr);
    for (cgr_status status : kAll) {
      EXPECT_STRNE(name, cgr_status_name(status)) << number;
      EXPECT_STRNE(text, cgr_status_text(status)) << number;
    }
  }
}

TEST(Version, IsThatOfTheHeader) {
  EXPECT_EQ(cgr_version(), CGR_VERSION);
  std::string start = "cgr " + std::to_string(CGR_VERSION_MAJOR) + "." + std::to_string(CGR_VERSION_MINOR) + "." +
                      std::to_string(CGR_VERSION_PATCH) + ", with";
  EXPECT_EQ(std::string(cgr_build_info()).substr(0, start.size()), start);
}

} // namespace
