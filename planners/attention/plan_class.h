/* What a plan is made for: the properties of a layer that decide who works on what. Layers with equal properties share a plan.
 *
 * Fixed when a runtime is created. All numbers come from the layer and from the kernel, which knows its tiles and what they cost.
 * Costs are times as integers, in any unit: only their ratio counts. */
#ifndef CGR_PLANNERS_ATTENTION_PLAN_CLASS_H
#define CGR_PLANNERS_ATTENTION_PLAN_CLASS_H

#include <stdint.h>

/* Which keys the queries of a layer see. */
enum cgr__sees {
  CGR__SEES_CACHE, /* of their own sequence: seq_len tokens in pages, the new tokens being the last of them */
  CGR__SEES_STEP,  /* the new tokens of the step alone, without pages */
  CGR__SEES_OTHER  /* of another sequence of the row (an encoder's): seq_len tokens in pages, not including the new tokens */
};

typedef struct cgr__plan_class {
  int32_t num_parts;   /* G, per stripe: CTAs that the device holds at once, 1 .. CGR__MAX_PARTS */
  int32_t head_blocks; /* H, per stripe: KV heads, times the blocks into which the query heads of one are cut */

  /* L, 1 or more: the head blocks of the layer, H L, are dealt out to stripes of equally many CTAs each. A plan describes one
   * stripe, and all stripes follow it: L neighbouring CTAs read the same tokens for neighbouring heads at about the same time. */
  int32_t stripes;

  /* The decode section: requests with few new tokens, each one q tile per head block, cut into G parts. */
  int32_t decode_query_len; /* most new tokens of such a request; those with more are in the prefill queue */
  int32_t decode_tile_kv;   /* tokens of a KV tile */
  int32_t cost_tile;        /* fixed cost of a q tile: loading q, merging, writing; 0 or more */
  int32_t cost_kv;          /* cost of a KV tile; 1 or more */
  int32_t snap;             /* a cut moves to the beginning or end of its tile if that is no further away; parts of equal tiles
                               are raised by at most this, or twice this if no tile is then cut, and never by more than 1/20 */

  /* The prefill queue: q tiles of the other requests, taken one by one. */
  int32_t prefill_tile_q, prefill_tile_kv; /* tokens of a q tile and of a KV tile */

  /* With a prefill queue. Costs in the units of the decode section, measured while decodes and q tiles run together. */
  int32_t prefill_cost_tile, prefill_cost_kv; /* of a q tile of the queue, and of each of its KV tiles */
  int32_t mixed_parts;  /* the most parts with decodes while there is a prefill queue, 1 .. G; 0: always G */
  int32_t memory_parts; /* parts that together saturate the memory, 1 .. G; 0: not known */

  /* What a query at position x sees: [x + 1 - window_left, x + 1 + window_right) of its sequence. With CGR__SEES_OTHER, which is
   * bidirectional and has neither windows nor chunks, all of it. */
  int32_t sees;          /* cgr__sees */
  int32_t window_left;   /* 0: all before it */
  int32_t window_right;  /* with `bidirectional` 0: all after it */
  int32_t bidirectional; /* 0: nothing after its own position */
  int32_t chunk;         /* tokens from x / chunk * chunk on; 0: all */

  int32_t max_splits; /* K: batch-invariant, every tile of the decode section is cut at its own K-ths; 0: wherever parts end */
  int32_t length_set;

  /* Room. */
  int32_t max_requests; /* in one step */
  int32_t max_entries;  /* of the prefill queue */
} cgr__plan_class;

#endif
