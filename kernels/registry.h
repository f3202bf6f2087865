/* The registry of kernel kinds: which kernel serves which layers on which device, and every reason why one does not.
 * What a kernel can do is said here alone. */
#ifndef CGR_KERNELS_REGISTRY_H
#define CGR_KERNELS_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/findings.h"
#include "base/limits.h"
#include "cgr/attention.h"
#include "planners/attention/plan_class.h"

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
  CGR__FEATURE_HEAD_DIM_V = 1u << 7,    /* head dim of v differs from that of q and k */
  CGR__FEATURE_CACHE_DTYPE = 1u << 8,   /* q, k and v of another dtype than the cache */
  CGR__FEATURE_OUT_DTYPE = 1u << 9,     /* out of another dtype than q */
  CGR__FEATURE_CACHE_SCALES = 1u << 10, /* a cache with scales */
  CGR__FEATURE_CROSS = 1u << 11         /* keys of a length set other than the queries' */
};

#define CGR__MAX_WIDTHS 3

typedef struct cgr__kernel_kind {
  const char *name; /* "host", "sm80" */
  int32_t device_kind;
  int32_t min_capability, max_capability; /* compute capabilities that it runs on */
  uint32_t dtypes;                        /* of the cache: bits 1 << cgr_dtype */
  int32_t min_head_dim, max_head_dim, head_dim_step;
  uint32_t features; /* CGR__FEATURE_* */

  /* Traits of its kernels. A line is a (token, head) pair of a q tile. */
  int32_t tile_lines;               /* of a full q tile; also the most query heads of a head block */
  int32_t line_lines;               /* of a q tile that the plan's line takes, unless one token's heads are more */
  int32_t tile_kv;                  /* tokens of a KV tile */
  int32_t cost_tile, cost_kv, snap; /* ns at head dim 128; of CUDA on an H200, rounded (profiles/calibrate). cost_kv scales
                                       with the width */
  int32_t max_ctas;                 /* per multiprocessor, by registers of the kernel that takes most; shared_bytes
                                       holds the others to it. On the host: in all */
  struct {
    int32_t head_dim, shared; /* the larger of both head dims is at most this; bytes of shared memory of a CTA
                                 (kernels/attention.h) */
  } width[CGR__MAX_WIDTHS];   /* of its instances, ascending; none on the host, which has one for all */
  int32_t max_splits;         /* K in batch-invariant mode */
} cgr__kernel_kind;

/* The kind for a layer that has been read (defaults filled in), in steps of up to `max_tokens` tokens. Returns NULL if there
 * is none, after adding every reason against the kind that comes nearest. Fields are those of cgr_layer. A dtype or head dim
 * of 0 is not known: it is no reason, nor is another that would have to be the same. */
const cgr__kernel_kind *cgr__kernel_kind_choose(const cgr_device_info *device, const cgr_layer *layer, int32_t max_tokens,
                                                cgr__findings *findings);

/* Query heads of a head block, and head blocks of a layer. */
int32_t cgr__kernel_kind_block_heads(const cgr__kernel_kind *kind, const cgr_layer *layer);
int32_t cgr__kernel_kind_head_blocks(const cgr__kernel_kind *kind, const cgr_layer *layer);

/* CTAs that the device holds at once. */
int32_t cgr__kernel_kind_num_parts(const cgr__kernel_kind *kind, const cgr_device_info *device, const cgr_layer *layer);

/* What the plans are made for besides the layers. */
typedef struct cgr__plan_options {
  int32_t num_parts; /* 0: what the device holds */
  int32_t max_requests, max_tokens;
  bool batch_invariant;
} cgr__plan_options;

/* The plans of all layers: a class for each kind of layer, and what their attention needs besides the page tables. */
typedef struct cgr__plans {
  int32_t num_classes;
  cgr__plan_class classes[CGR__MAX_CLASSES];
  int64_t offset[CGR__MAX_CLASSES]; /* of its plan, in words of the buffer */
  uint8_t class_of[CGR__MAX_LAYERS];
  int32_t line_lines[CGR__MAX_CLASSES], queue_lines[CGR__MAX_CLASSES]; /* lines of a slot */
  int32_t shared_bytes[CGR__MAX_CLASSES];                              /* of a CTA at least (cgr__attention_args) */
  int64_t plan_words;                                                  /* i32 */
  int64_t num_slots;                    /* of the class that has most: as many counters of arrivals */
  int64_t num_counters;                 /* those, and after them the head of each layer's queue */
  int64_t partial_vectors, partial_dim; /* fp32 partial outputs */
} cgr__plans;

/* `kinds` [num_layers]; a layer with NULL is skipped: it has findings of its own. Having more classes than there is room for
 * is a finding, as is a plan too large for its numbers. */
void cgr__plans_make(const cgr_device_info *device, const cgr_layer *layers, const cgr__kernel_kind *const *kinds,
                     int32_t num_layers, const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings);

#ifdef __cplusplus
}
#endif
#endif
