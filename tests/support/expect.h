// Statuses of calls: what was expected, what came, and the message.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cgr/base.h"
#include "tests/support/getters.h"

#define CGR_EXPECT(status, call)                                                                                   \
  do {                                                                                                             \
    cgr_status got_ = (call);                                                                                      \
    EXPECT_EQ(cgr_status_name(got_), std::string(cgr_status_name(status))) << #call << ": " << cgr_last_message(); \
  } while (0)
#define CGR_EXPECT_OK(call) CGR_EXPECT(CGR_OK, call)
#define CGR_ASSERT(status, call)                                                                                   \
  do {                                                                                                             \
    cgr_status got_ = (call);                                                                                      \
    ASSERT_EQ(cgr_status_name(got_), std::string(cgr_status_name(status))) << #call << ": " << cgr_last_message(); \
  } while (0)
#define CGR_ASSERT_OK(call) CGR_ASSERT(CGR_OK, call)

namespace cgr_test {

using Words = std::vector<std::string>;

// `got` is `status`, and the message has all of `words`.
inline void ExpectMessage(cgr_status got, cgr_status status, const Words &words) {
  std::string message = cgr_last_message();
  EXPECT_TRUE(got == status) << cgr_status_name(got) << " (" << message << "), expected " << cgr_status_name(status);
  for (const std::string &word : words)
    EXPECT_TRUE(message.find(word) != std::string::npos) << message << ": lacks " << word;
}

// An engine of any kind, with its graphs captured.
template <class Engine> struct Captured : Engine {
  template <class... Args> explicit Captured(Args &&...args) : Engine(std::forward<Args>(args)...) {
    CGR_EXPECT_OK(this->Capture());
  }
};

} // namespace cgr_test
