/* What graphs are made from and no region holds. It is hashed, so that a graph made from other numbers is stale. */
#ifndef CGR_RUNTIME_CAPTURE_CAPTURED_INPUTS_H
#define CGR_RUNTIME_CAPTURE_CAPTURED_INPUTS_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stretch of the runtime that captures read. */
typedef struct cgr__captured_input {
  const char *name;
  const void *data;
  size_t bytes;
} cgr__captured_input;

#define CGR__NUM_CAPTURED_INPUTS 11
void cgr__captured_inputs_list(const cgr_runtime *rt, cgr__captured_input list[CGR__NUM_CAPTURED_INPUTS]);

/* The hash of all of it. */
uint64_t cgr__captured_inputs_hash(const cgr_runtime *rt);

#ifdef __cplusplus
}
#endif
#endif
