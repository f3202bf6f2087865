// Calls that must be refused and leave everything as it was.
#ifndef CGR_TESTS_SUPPORT_REFUSED_H
#define CGR_TESTS_SUPPORT_REFUSED_H

#include <string>
#include <vector>

#include "tests/support/toy_engine.h"

namespace cgr_test {

using Words = std::vector<std::string>;

// `got` is `status`, and the message has all of `words`.
inline void ExpectMessage(cgr_status got, cgr_status status, const Words &words) {
  std::string message = cgr_last_message();
  EXPECT_TRUE(got == status) << cgr_status_name(got) << " (" << message << "), expected " << cgr_status_name(status);
  for (const std::string &word : words)
    EXPECT_TRUE(message.find(word) != std::string::npos) << message << ": lacks " << word;
}

// The same, and nothing about the toy's runtime changes. `refused`: prepare calls among it.
template <class Call> void ExpectRefused(Toy &toy, cgr_status status, const Words &words, Call call, uint64_t refused = 0) {
  ToySnapshot before(toy);
  ExpectMessage(call(), status, words);
  before.ExpectSame(ToySnapshot(toy), refused);
}

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_REFUSED_H
