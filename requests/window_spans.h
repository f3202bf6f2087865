/* How far back the layers of a group see, and so which of a row's pages its next steps need.
 *
 * When a step finds c tokens in the cache, its new tokens see tokens from c + 1 - W on in a layer with a window of W, from
 * c / C * C on in one with chunks of C, and all in any other. Of the layers of a group, the one that sees furthest back counts.
 * As c grows, the first token seen never moves back: a page before it is not needed again until a shorter length is set. */
#ifndef CGR_REQUESTS_WINDOW_SPANS_H
#define CGR_REQUESTS_WINDOW_SPANS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_WINDOW_SPANS 8

/* The kinds of layers of a group; none, or one of { 0, 0 }: every step sees all tokens. */
typedef struct cgr__window_spans {
  int32_t count;
  struct {
    int32_t window, chunk; /* 0: none */
  } of[CGR__MAX_WINDOW_SPANS];
} cgr__window_spans;

/* A layer of the group. Layers of more kinds than there is room for see all. */
void cgr__window_spans_add(cgr__window_spans *spans, int32_t window, int32_t chunk);

/* The first token seen by a step that finds `computed` tokens in the cache. */
int32_t cgr__window_spans_first(const cgr__window_spans *spans, int32_t computed);

/* The fewest tokens in the cache with which a step sees none before token `first`; INT32_MAX: it always does. */
int32_t cgr__window_spans_least(const cgr__window_spans *spans, int32_t first);

#ifdef __cplusplus
}
#endif

#endif
