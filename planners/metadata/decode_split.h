/* Where a batch is split: its decodes come first, then its prefills. The same on host and device. */
#ifndef CGR_PLANNERS_METADATA_DECODE_SPLIT_H
#define CGR_PLANNERS_METADATA_DECODE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__decode_split {
  int32_t threshold; /* most new tokens of a decode; 0: there are no decodes */
  int32_t uniform;   /* 1: all decodes have as many new tokens as the first request */
} cgr__decode_split;

/* If a batch has a prefill (cgr__is_prefill), its decodes end at the first request for which cgr__ends_decodes holds; else all
 * are decodes. The two functions differ where the split is uniform: a request without tokens makes no prefill, but ends the
 * decodes where there is one. With a threshold of 1, neither 0 nor 1 new tokens make a prefill, whatever the first request has.
 * `first`: its new tokens. */
CGR__HOST_DEVICE bool cgr__is_prefill(const cgr__decode_split *s, int32_t first, int32_t query_len) {
  bool differs = s->uniform && s->threshold > 1 && query_len != first && query_len != 0;
  return differs || query_len > s->threshold;
}
CGR__HOST_DEVICE bool cgr__ends_decodes(const cgr__decode_split *s, int32_t first, int32_t query_len) {
  return query_len > s->threshold || (s->uniform && query_len != first);
}

/* Counts the decodes of a batch whose requests are added in their order. */
typedef struct cgr__decodes {
  cgr__decode_split split;
  int32_t first, added; /* new tokens of the first request; requests so far */
  int32_t end;          /* the first request that ends the decodes */
  bool has_prefill;
} cgr__decodes;

static inline void cgr__decodes_add(cgr__decodes *d, int32_t query_len) {
  if (d->added == 0)
    d->first = query_len;
  if (d->end == d->added && !cgr__ends_decodes(&d->split, d->first, query_len))
    d->end++;
  d->has_prefill |= cgr__is_prefill(&d->split, d->first, query_len);
  d->added++;
}
static inline int32_t cgr__decodes_count(const cgr__decodes *d) {
  return d->split.threshold == 0 ? 0 : d->has_prefill ? d->end : d->added;
}

#ifdef __cplusplus
}
#endif
#endif
