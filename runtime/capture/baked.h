/* What graphs are made from and no region holds. It is hashed, so that a graph made from other numbers is stale. */
#ifndef CGR_RUNTIME_CAPTURE_BAKED_H
#define CGR_RUNTIME_CAPTURE_BAKED_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stretch of the runtime that captures read. */
typedef struct cgr__baked {
  const char *name;
  const void *data;
  size_t bytes;
} cgr__baked;

#define CGR__NUM_BAKED 10
void cgr__baked_list(const cgr_runtime *rt, cgr__baked list[CGR__NUM_BAKED]);

/* The hash of all of it. */
uint64_t cgr__baked_hash(const cgr_runtime *rt);

#ifdef __cplusplus
}
#endif
#endif
