/* The name of a key, for people to read. */
#ifndef CGR_BASE_KEY_H
#define CGR_BASE_KEY_H

#include "cgr/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "full 8r 8t q1 v0": kind, padded requests and tokens, query length, variant; and " p1" for a program after the first. */
typedef struct cgr__key_text {
  char text[64];
} cgr__key_text;
cgr__key_text cgr__key_name(const cgr_key *key);

#ifdef __cplusplus
}
#endif
#endif
