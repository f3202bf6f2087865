// The thread's last message.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/status.h"

namespace {

TEST(Message, CountOneWithoutAnEnding) {
  for (int64_t count : { -1, 0, 2, 11, 21 })
    EXPECT_STREQ(cgr__plural(count), "s") << count;
  EXPECT_STREQ(cgr__plural(1), "");
}

TEST(Message, FailReturnsItsStatusAndKeepsTheMessage) {
  EXPECT_EQ(cgr__fail(CGR_ERROR_BUSY, "the %s is %d, expected %d", "thing", 3, 4), CGR_ERROR_BUSY);
  EXPECT_STREQ(cgr_last_message(), "the thing is 3, expected 4");
  EXPECT_EQ(cgr__fail(CGR_NOT_READY, "later"), CGR_NOT_READY);
  EXPECT_STREQ(cgr_last_message(), "later");
}

TEST(Message, IsEmptyOnAThreadOnWhichNothingFailed) {
  cgr__fail(CGR_ERROR_STATE, "of the first thread");
  std::thread([] {
    EXPECT_STREQ(cgr_last_message(), "");
    EXPECT_EQ(cgr_last_device_code(), 0);
    EXPECT_EQ(cgr__failures(), 0u);
  }).join();
}

TEST(Message, ThreadsKeepTheirOwn) {
  cgr__fail(CGR_ERROR_STATE, "mine");
  cgr__set_device_code(7);
  uint64_t failures = cgr__failures();
  std::thread([] {
    for (int i = 0; i < 3; i++)
      cgr__fail(CGR_ERROR_BUSY, "other %d", i);
    cgr__set_device_code(9);
    EXPECT_STREQ(cgr_last_message(), "other 2");
    EXPECT_EQ(cgr_last_device_code(), 9);
    EXPECT_EQ(cgr__failures(), 3u);
  }).join();
  EXPECT_STREQ(cgr_last_message(), "mine");
  EXPECT_EQ(cgr_last_device_code(), 7);
  EXPECT_EQ(cgr__failures(), failures);
}

TEST(Message, EveryFailureIsCounted) {
  uint64_t before = cgr__failures();
  cgr__fail(CGR_ERROR_STATE, "same");
  cgr__fail(CGR_ERROR_STATE, "same");
  EXPECT_EQ(cgr__failures(), before + 2);
}

TEST(Message, AFailureDoesNotTouchTheDeviceCode) {
  cgr__set_device_code(700);
  cgr__fail(CGR_ERROR_DEVICE, "launching");
  EXPECT_EQ(cgr_last_device_code(), 700);
  cgr__set_device_code(0);
  EXPECT_EQ(cgr_last_device_code(), 0);
}

// Whatever its length, a message is a prefix of what was said, and long enough for any refusal.
TEST(Message, ALongOneIsCutAtItsEnd) {
  for (size_t length : { 300u, 510u, 511u, 512u, 513u, 4000u, 100000u }) {
    std::string said;
    for (size_t i = 0; i < length; i++)
      said.push_back(static_cast<char>('a' + i % 26));
    EXPECT_EQ(cgr__fail(CGR_ERROR_STATE, "%s", said.c_str()), CGR_ERROR_STATE);
    std::string kept = cgr_last_message();
    EXPECT_GE(kept.size(), std::min<size_t>(length, 400));
    EXPECT_EQ(kept, said.substr(0, kept.size()));
  }
  cgr__fail(CGR_ERROR_STATE, "short");
  EXPECT_STREQ(cgr_last_message(), "short");
}

TEST(Message, CanBeBuiltFromTheLastOne) {
  cgr__fail(CGR_ERROR_DEVICE, "the cause");
  cgr__fail(CGR_ERROR_CALLBACK, "outer: %s; again: %s", cgr_last_message(), cgr_last_message());
  EXPECT_STREQ(cgr_last_message(), "outer: the cause; again: the cause");
  for (int i = 0; i < 2000; i++) /* until it is longer than what is kept, and longer still */
    cgr__fail(CGR_ERROR_CALLBACK, "+%s", cgr_last_message());
  std::string kept = cgr_last_message();
  EXPECT_EQ(kept.find_first_not_of('+'), std::string::npos);
  EXPECT_GE(kept.size(), 400u);
}

TEST(Message, RequireNamesPointerAndFunction) {
  auto call = [](const void *view) -> cgr_status {
    CGR__REQUIRE(view, "cgr_thing_get");
    return CGR_OK;
  };
  int something = 0;
  EXPECT_EQ(call(&something), CGR_OK);
  EXPECT_EQ(call(nullptr), CGR_ERROR_NULL_POINTER);
  EXPECT_STREQ(cgr_last_message(), "cgr_thing_get: view is NULL, expected an address");
}

TEST(Message, TryPassesOnWhatIsNotOk) {
  int calls = 0;
  auto call = [&](cgr_status status) -> cgr_status {
    CGR__TRY((calls++, status));
    return CGR_ERROR_STATE;
  };
  EXPECT_EQ(call(CGR_NOT_READY), CGR_NOT_READY);
  EXPECT_EQ(call(CGR_OK), CGR_ERROR_STATE);
  EXPECT_EQ(calls, 2);
}

} // namespace
