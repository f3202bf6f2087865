/* Collects every reason why a configuration is refused. Checks add what they find and go on; creation fails with the first
 * finding. */
#ifndef CGR_BASE_FINDINGS_H
#define CGR_BASE_FINDINGS_H

#include <stdint.h>

#include "base/status.h"
#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__findings {
  cgr_finding *out; /* [capacity], the caller's */
  int32_t capacity;
  int32_t count;        /* found, also beyond the capacity */
  const char *see;      /* the function that lists all, for the message; NULL: the one that fails does */
  int32_t layer, group; /* what is being looked at, -1: neither; copied into each finding */
  cgr_finding first;
} cgr__findings;

/* What every function with `findings, capacity, count` asks of them; sets *count to 0. */
cgr_status cgr__findings_check(const char *function, const cgr_finding *out, int32_t capacity, int32_t *count);
void cgr__findings_init(cgr__findings *findings, cgr_finding *out, int32_t capacity);

/* Adds a finding. `field` names what is wrong; the text follows it: "is 72, expected 64 or 128". */
void cgr__findings_add(cgr__findings *findings, cgr_status status, const char *field, const char *format, ...) CGR__FORMAT(4, 5);

/* Adds a failure that already has a message, from a reader of structs, say; the message may begin with the field's name. */
void cgr__findings_add_failure(cgr__findings *findings, cgr_status status, const char *field);

/* CGR_OK when nothing was found; else the first finding's status, with its text and the number of the others as the message. */
cgr_status cgr__findings_status(const cgr__findings *findings, const char *function);

#ifdef __cplusplus
}
#endif
#endif
