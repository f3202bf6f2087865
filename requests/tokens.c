#include "requests/tokens.h"

#include "base/limits.h"

/* Whether none of the words, each plus `more`, is negative. */
static inline bool none_negative(const int32_t *words, int32_t count, uint32_t more) {
  uint32_t signs = 0;
  int32_t i = 0;
  for (; i + CGR__WIDE_LOOP <= count && signs >> 31 == 0; i += CGR__WIDE_LOOP)
    for (int32_t j = 0; j < CGR__WIDE_LOOP; j++)
      signs |= (uint32_t)words[i + j] + more;
  for (; i < count && signs >> 31 == 0; i++)
    signs |= (uint32_t)words[i] + more;
  return signs >> 31 == 0;
}

cgr__token_kind cgr__tokens_kind(const int32_t *tokens, int32_t count) {
  if (none_negative(tokens, count, 0))
    return CGR__TOKENS_ARE_IDS;
  return none_negative(tokens, count, 1) ? CGR__TOKENS_ARE_IDS_OR_LAST : CGR__TOKENS_ARE_OTHER;
}
