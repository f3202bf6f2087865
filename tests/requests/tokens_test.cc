// What kind of tokens a batch has, wherever in it the token is that decides.
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "cgr/cgr.h"
#include "requests/tokens.h"
}

namespace cgr_test {
namespace {

cgr__token_kind KindOf(const std::vector<int32_t> &tokens) { return cgr__tokens_kind(tokens.data(), int32_t(tokens.size())); }

TEST(Tokens, AreOfTheKindThatTheOneDecides) {
  for (int32_t count : { 1, 7, 8, 9, 31, 32, 33, 100 })
    for (int32_t at = 0; at < count; at++) {
      std::vector<int32_t> tokens(size_t(count), 5);
      tokens[size_t(at)] = 0;
      EXPECT_EQ(KindOf(tokens), CGR__TOKENS_ARE_IDS);
      tokens[size_t(at)] = INT32_MAX;
      EXPECT_EQ(KindOf(tokens), CGR__TOKENS_ARE_IDS);
      tokens[size_t(at)] = CGR_TOKEN_LAST;
      EXPECT_EQ(KindOf(tokens), CGR__TOKENS_ARE_IDS_OR_LAST);
      for (int32_t other : { -2, -3, INT32_MIN }) {
        tokens[size_t(at)] = other;
        EXPECT_EQ(KindOf(tokens), CGR__TOKENS_ARE_OTHER) << other << " at " << at << " of " << count;
      }
    }
  EXPECT_EQ(KindOf({}), CGR__TOKENS_ARE_IDS);
}

// The look at them adds 1, with which the largest id becomes negative: it is then looked at closely, and no error.
TEST(Tokens, OfTheLargestIdAmongLastOnesAreNotDecided) {
  EXPECT_EQ(KindOf({ CGR_TOKEN_LAST, INT32_MAX }), CGR__TOKENS_ARE_OTHER);
  EXPECT_EQ(KindOf({ CGR_TOKEN_LAST, INT32_MAX - 1 }), CGR__TOKENS_ARE_IDS_OR_LAST);
}

} // namespace
} // namespace cgr_test
