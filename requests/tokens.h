/* What kind of tokens a batch has. */
#ifndef CGR_REQUESTS_TOKENS_H
#define CGR_REQUESTS_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What some tokens are. In order: each kind allows what the one before it does. */
typedef enum cgr__token_kind {
  CGR__TOKENS_ARE_IDS,
  CGR__TOKENS_ARE_IDS_OR_LAST,
  CGR__TOKENS_ARE_OTHER /* perhaps because an INT32_MAX is among others that are CGR_TOKEN_LAST */
} cgr__token_kind;
cgr__token_kind cgr__tokens_kind(const int32_t *tokens, int32_t count);

#ifdef __cplusplus
}
#endif

#endif
