/* The flight recorder as JSON: its records, and the head of the text that they are in. */
#ifndef CGR_TRACING_JSON_H
#define CGR_TRACING_JSON_H

#include "cgr/tracing.h"
#include "tracing/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The last launch that failed. */
typedef struct cgr__failure {
  uint64_t seq;    /* the number that it has used up; 0: none */
  uint64_t ticket; /* of the step, if it stayed prepared; 0: it did not */
  cgr_key key;
  int32_t status;
  int device_code;
  char message[320];
} cgr__failure;

typedef struct cgr__dump_head {
  const char *device, *device_kind;
  uint64_t layout, launched, completed, guard_errors;
  const char *dead;                           /* what it has died of; NULL: it has not */
  int dead_code;                              /* of the device's API */
  const cgr__failure *failure;                /* of status CGR_OK: none */
  uint64_t incomplete;                        /* the first step that has not completed; 0: none */
  const cgr_flight_record *incomplete_record; /* its record; NULL: it is not kept any more */
} cgr__dump_head;

/* The most bytes that a head and a record take, with what stands between them. */
#define CGR__JSON_HEAD_BYTES 8192
#define CGR__JSON_RECORD_BYTES 768

/* Opens the object; the caller adds members, each after a comma, and closes it. */
void cgr__json_head(cgr__text *text, const cgr__dump_head *head);
void cgr__json_record(cgr__text *text, const cgr_flight_record *record);

#ifdef __cplusplus
}
#endif
#endif
