/* The plans of all layers of a configuration: their plan classes, the size of each plan, and the capacity of what its attention
 * needs besides the page tables. A kind of kernels is known here by its traits alone. */
#ifndef CGR_PLANNERS_ATTENTION_PLANS_H
#define CGR_PLANNERS_ATTENTION_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/findings.h"
#include "base/limits.h"
#include "cgr/attention.h"
#include "planners/attention/plan_class.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_WIDTHS 3

/* What plans need to know of a kind of kernels. A line is a (token, head) pair of a q tile. */
typedef struct cgr__plan_traits {
  int32_t tile_lines;               /* of a full q tile; also the most query heads of a head block */
  int32_t decode_lines;             /* of a q tile that the plan's decode section takes, unless one token's heads are more */
  int32_t tile_kv;                  /* tokens of a KV tile */
  int32_t cost_tile, cost_kv, snap; /* ns at head dim 128; of CUDA on an H200, rounded (profiles/calibrate). cost_kv scales
                                       with the width, and on a GPU with the bytes of the cache's elements */
  int32_t max_ctas;                 /* per multiprocessor, by registers of the kernel that takes most; shared_bytes
                                       holds the others to it. On the host: in all */
  struct {
    int32_t head_dim, shared; /* the larger of both head dims is at most this; bytes of shared memory of a CTA */
    /* When some CTAs have the decode section and the others q tiles (profiles/calibrate): ns of a KV tile of the former, as long
     * as the memory keeps up, with 2 bytes to an element and half of it with 1; of a q tile, and of each of its KV tiles. */
    int32_t with_prefill, prefill_tile, prefill_kv;
  } width[CGR__MAX_WIDTHS]; /* of its instances, ascending; none on the host, which has one for all */
  int32_t max_splits;       /* K in batch-invariant mode */
  int32_t max_padding;      /* the most dynamic shared memory that a launch takes only to keep other CTAs away */
} cgr__plan_traits;

/* Bytes of shared memory of a CTA that runs the layer; 0 when there is no such width. */
int32_t cgr__plan_shared_bytes(const cgr__plan_traits *traits, const cgr_layer *layer);

/* Query heads of a head block, and head blocks of a layer. */
static inline int32_t cgr__plan_block_heads(const cgr__plan_traits *traits, const cgr_layer *layer) {
  const int32_t q_per_kv = layer->num_q_heads / layer->num_kv_heads;
  return q_per_kv < traits->tile_lines ? q_per_kv : traits->tile_lines;
}
int32_t cgr__plan_head_blocks(const cgr__plan_traits *traits, const cgr_layer *layer);

/* CTAs that the device holds at once. */
int32_t cgr__plan_device_parts(const cgr__plan_traits *traits, const cgr_device_info *device, const cgr_layer *layer);

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
  int32_t decode_lines[CGR__MAX_CLASSES], prefill_lines[CGR__MAX_CLASSES]; /* lines of a partial */
  int32_t shared_bytes[CGR__MAX_CLASSES];                                  /* of a CTA at least (cgr__attention_args) */
  int64_t plan_words;                                                      /* i32 */
  int64_t num_partials;                 /* of the class that has most: as many counters of arrivals */
  int64_t num_counters;                 /* those, and after them the head of each layer's prefill queue */
  int64_t partial_vectors, partial_dim; /* fp32 partial outputs */
} cgr__plans;

/* `traits` [num_layers]: of the kernels of each layer; a layer with NULL is skipped: it has findings of its own. Having more
 * classes than there is room for is a finding, as is a plan too large for its numbers. */
void cgr__plans_make(const cgr_device_info *device, const cgr_layer *layers, const cgr__plan_traits *const *traits,
                     int32_t num_layers, const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings);

#ifdef __cplusplus
}
#endif
#endif
