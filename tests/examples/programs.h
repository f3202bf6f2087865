// The small examples as programs, on each device, and what their model answers: the oracle of their tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "cgr/cgr.h"
#include "tests/support/commands.h"

namespace cgr_test {

inline Outcome RunExample(const std::string &arguments) { return RunCommand("examples/" + arguments); }

// The parameter names a device; without it the case is skipped.
class OnDevice : public ::testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    cgr_device *device = nullptr;
    const cgr_status status = cgr_device_open(GetParam(), nullptr, &device);
    const char *require = std::getenv("CGR_REQUIRE_GPU");
    if (status != CGR_OK) {
      ASSERT_FALSE(require != nullptr && std::string(require) == "1") << cgr_last_message();
      GTEST_SKIP() << cgr_last_message();
    }
    ASSERT_EQ(cgr_device_close(device), CGR_OK);
  }
};

inline std::string DeviceName(const ::testing::TestParamInfo<const char *> &device) {
  return std::string(device.param) == "host" ? "host" : "cuda";
}

// What the model says next: the letter that most often followed the last one. The tests avoid texts in which two letters tie for
// first place: rounding would decide.
inline char NextLetter(const std::string &text) {
  std::map<char, int> votes;
  for (size_t i = 1; i < text.size(); i++)
    if (text[i - 1] == text.back())
      votes[text[i]]++;
  char best = '?';
  int most = 0, rivals = 0;
  for (const auto &[letter, count] : votes) {
    rivals = count > most ? 0 : rivals + (count == most);
    best = count > most ? letter : best;
    most = std::max(most, count);
  }
  EXPECT_TRUE(most > 0 && rivals == 0) << "\"" << text << "\" has no clear next letter";
  return best;
}

// `letters` of them, each from all that came before.
inline std::string Continued(std::string text, size_t letters) {
  const size_t begin = text.size();
  while (text.size() < begin + letters)
    text += NextLetter(text);
  return text.substr(begin);
}

} // namespace cgr_test
