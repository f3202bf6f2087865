/* The registry of kernel kinds: which kind serves which layers on which device, which kernel it launches, and every reason why a
 * layer has none. What a kernel can do is said here alone. */
#ifndef CGR_KERNELS_REGISTRY_H
#define CGR_KERNELS_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/findings.h"
#include "cgr/attention.h"
#include "devices/device.h"
#include "planners/attention/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a layer can ask for beyond plain causal attention over its own pages: abilities that engines can ask for, and others. */
enum cgr__feature {
  CGR__FEATURE_WINDOW = CGR_ABILITY_WINDOW,
  CGR__FEATURE_CHUNK = CGR_ABILITY_CHUNK,
  CGR__FEATURE_SOFTCAP = CGR_ABILITY_SOFTCAP,
  CGR__FEATURE_ALIBI = CGR_ABILITY_ALIBI,
  CGR__FEATURE_SINKS = CGR_ABILITY_SINKS,
  CGR__FEATURE_BIDIRECTIONAL = CGR_ABILITY_BIDIRECTIONAL,
  CGR__FEATURE_NO_CACHE = CGR_ABILITY_NO_CACHE,
  CGR__FEATURE_HEAD_DIM_V = CGR_ABILITY_HEAD_DIM_V,
  CGR__FEATURE_CROSS = CGR_ABILITY_CROSS,
  CGR__FEATURE_LSE = CGR_ABILITY_LSE,
  CGR__FEATURE_CACHE_DTYPE = 1 << 24,  /* q, k and v of another dtype than the cache, other than with `cache_dtypes` */
  CGR__FEATURE_OUT_DTYPE = 1 << 25,    /* out of another dtype than q */
  CGR__FEATURE_CACHE_SCALES = 1 << 26, /* a cache with scales, other than static ones of `cache_dtypes` */
  CGR__FEATURE_Q_DTYPE = 1 << 27       /* q of another dtype than k and v */
};

/* Kernels that use one kind of instructions. Their numbers are in a kind.h next to them. */
typedef struct cgr__kernel_kind {
  const char *name;             /* "host", "mma" */
  const cgr__kernel *attention; /* cgr__attention_args */
  int32_t device_kind;
  int32_t min_capability, max_capability; /* compute capabilities that it runs on */
  uint32_t dtypes;                        /* of q, k, v and out, and of the cache: bits 1 << cgr_dtype */
  uint32_t cache_dtypes;                  /* of 8 bits: further caches that it reads, for q, k, v and out of any of `dtypes`, with
                                             factors that are native (cgr__scale_is_native) */
  uint32_t out_dtypes;                    /* of 8 bits: further ones of out */
  int32_t min_head_dim, max_head_dim, head_dim_step;
  uint32_t features; /* CGR__FEATURE_* */
  cgr__plan_traits plan;
} cgr__kernel_kind;

/* The kind for a layer that has been read (defaults filled in), in steps of up to `max_tokens` tokens. Returns NULL if there
 * is none, after adding every reason against the kind that comes nearest, the append's reasons included. Fields are those of
 * cgr_layer. A dtype or head dim of 0 is not known: it is no reason, nor is another that would have to be the same. */
const cgr__kernel_kind *cgr__kernel_kind_choose(const cgr_device_info *device, const cgr_layer *layer, int32_t max_tokens,
                                                cgr__findings *findings);

/* What the kind for such a layer, or the one that comes nearest, can do and wants: fills `needs`, which comes with zeros. False
 * if no kind runs on the device. Fields of the layer that are 0 are not known. */
bool cgr__kernel_kind_describe(const cgr_device_info *device, const cgr_layer *layer, cgr_backend_needs *needs);

/* Adds every reason why the library's append cannot write k and v of such a layer, which owns its cache, for a backend that reads
 * it. Fields are those of cgr_layer. */
void cgr__append_check(const cgr_layer *layer, int32_t max_tokens, cgr__findings *findings);

/* Loads the kernels of every kind that runs on the device: no capture and no step may do that. Returns the device's error, 0 for
 * success. */
int cgr__kernel_kinds_preload(cgr_device *dev, const cgr_device_info *info);

/* cgr__plans_make with the traits of `kinds` [num_layers], where NULL skips a layer. That the device's planner lacks the shared
 * memory for the plans is a finding too. */
void cgr__kernel_kinds_plan(const cgr_device_info *device, const cgr_layer *layers, const cgr__kernel_kind *const *kinds,
                            int32_t num_layers, const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings);

#ifdef __cplusplus
}
#endif
#endif
