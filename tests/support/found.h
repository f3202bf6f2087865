// Findings of a test of graphs (self-test, audit).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/expect.h"

namespace cgr_test {

struct Found {
  cgr_status status = CGR_OK;
  std::vector<cgr_finding> findings;
  int32_t count = 0;
};

// For a call that takes findings, their capacity and their count.
template <class Call> Found Collect(int32_t capacity, Call call) {
  Found found;
  found.findings.resize(size_t(capacity));
  found.status = call(found.findings.data(), capacity, &found.count);
  found.findings.resize(size_t(std::min(found.count, capacity)));
  return found;
}

inline void ExpectNothing(const Found &found) {
  CGR_EXPECT_OK(found.status);
  EXPECT_EQ(found.count, 0);
  for (const cgr_finding &finding : found.findings)
    ADD_FAILURE() << finding.field << ": " << finding.text;
}

// At least one finding, all of that status; each text has one of the words, and some text has the first.
inline void ExpectFound(const Found &found, cgr_status status, const Words &words) {
  EXPECT_EQ(found.status, status);
  EXPECT_GT(found.count, 0);
  bool first = false;
  for (const cgr_finding &finding : found.findings) {
    EXPECT_EQ(finding.status, status) << finding.text;
    const std::string text = finding.text;
    const auto has = [&](const std::string &word) { return text.find(word) != std::string::npos; };
    EXPECT_TRUE(std::any_of(words.begin(), words.end(), has)) << finding.field << ": " << text;
    first |= has(words[0]);
  }
  EXPECT_TRUE(first) << words[0];
}

} // namespace cgr_test
