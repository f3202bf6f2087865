/* The registry of attention variants: which kernel serves which layers on which device, and every reason why one does not.
 * What a kernel can do is told here alone. */
#ifndef CGR_KERNELS_VARIANTS_H
#define CGR_KERNELS_VARIANTS_H

#include <stdint.h>

#include "base/findings.h"
#include "cgr/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a layer can ask for beyond plain causal attention over its own pages. */
enum cgr__feature {
  CGR__FEATURE_WINDOW = 1u << 0,
  CGR__FEATURE_CHUNK = 1u << 1,
  CGR__FEATURE_SOFTCAP = 1u << 2,
  CGR__FEATURE_ALIBI = 1u << 3,
  CGR__FEATURE_SINKS = 1u << 4,
  CGR__FEATURE_BIDIRECTIONAL = 1u << 5,
  CGR__FEATURE_NO_CACHE = 1u << 6,
  CGR__FEATURE_HEAD_DIM_V = 1u << 7,   /* head dim of v apart from that of q and k */
  CGR__FEATURE_CACHE_DTYPE = 1u << 8,  /* q, k and v of another dtype than the cache */
  CGR__FEATURE_OUT_DTYPE = 1u << 9,    /* out of another dtype than q */
  CGR__FEATURE_CACHE_SCALES = 1u << 10 /* a cache with scales */
};

typedef struct cgr__variant {
  const char *name; /* "host", "sm80" */
  int32_t device_kind;
  int32_t min_capability, max_capability; /* compute capabilities that it runs on */
  uint32_t dtypes;                        /* of the cache: bits 1 << cgr_dtype */
  int32_t min_head_dim, max_head_dim, head_dim_step;
  uint32_t features; /* CGR__FEATURE_* */
} cgr__variant;

/* The variant for a layer that has been read (defaults filled in), in steps of up to `max_tokens` tokens; NULL after adding every
 * reason why there is none, of the variant that comes nearest. Fields are named "layers[i].x". A dtype or head dim of 0 is not
 * known: it is no reason, nor is another that would have to be the same. */
const cgr__variant *cgr__variant_choose(const cgr_device_info *device, const cgr_layer *layer, int32_t index, int32_t max_tokens,
                                        cgr__findings *findings);

/* What the attention of all layers needs besides the page tables. One plan serves all layers: its q tile fits the widest GQA
 * group, and its G parts fill the device about twice. */
typedef struct cgr__attention_sizes {
  int32_t num_parts, tile_q;            /* G, query tokens per tile */
  int64_t plan_words, plan_counters;    /* i32 */
  int64_t partial_vectors, partial_dim; /* fp32 partial outputs */
} cgr__attention_sizes;

/* `num_parts` 0: from the device. A layer with 0 query heads does not count: its heads are not known. */
cgr__attention_sizes cgr__attention_sizes_of(const cgr_device_info *device, const cgr_layer *layers, int32_t num_layers,
                                             int32_t num_parts);

#ifdef __cplusplus
}
#endif
#endif
