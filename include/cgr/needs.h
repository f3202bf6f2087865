/* What attention kernels can do and want of a cache: the answer to cgr_backend_ask (ask.h), and of cgr_backend.describe. */
#ifndef CGR_NEEDS_H
#define CGR_NEEDS_H

#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a layer may be or have beyond plain causal attention over pages of its own. */
typedef enum cgr_ability {
  CGR_ABILITY_WINDOW = 1,         /* window_left, window_right */
  CGR_ABILITY_CHUNK = 2,          /* chunk */
  CGR_ABILITY_SOFTCAP = 4,        /* softcap */
  CGR_ABILITY_ALIBI = 8,          /* alibi_slopes */
  CGR_ABILITY_SINKS = 16,         /* sinks */
  CGR_ABILITY_BIDIRECTIONAL = 32, /* CGR_LAYER_BIDIRECTIONAL: attention that is not causal */
  CGR_ABILITY_NO_CACHE = 64,      /* CGR_LAYER_NO_CACHE */
  CGR_ABILITY_HEAD_DIM_V = 128,   /* head_dim_v other than head_dim */
  CGR_ABILITY_CROSS = 256,        /* keys of another length set than the queries' */
  CGR_ABILITY_MLA = 512,          /* v is a part of k */
  CGR_ABILITY_HEAD_SCALES = 1024, /* a factor of K, and of V, for each KV head; without it, one for all heads */
  CGR_ABILITY_LSE = 2048,         /* cgr_attention.lse */
  CGR_ABILITY_SPANS = 4096,       /* spans of a causal prompt that attend to each other both ways; no layer can ask for it yet */
  CGR_ABILITY_SPARSE = 8192       /* a list of the keys that each query sees; no layer can ask for it yet */
} cgr_ability;

/* What kernels can do for a layer, and what they want of its cache. Sets of dtypes are bits 1 << cgr_dtype. */
typedef struct cgr_backend_needs {
  uint32_t size;
  int32_t layout;              /* cgr_kv_layout that the cache must have; 0: any */
  uint64_t abilities;          /* CGR_ABILITY_*: all that they have; a layer that needs another is refused. What only calls ask
                                  for (lse, CGR_ATTENTION_NON_CAUSAL) is not compared with them */
  uint32_t dtypes;             /* of q, k, v, out and the cache; 0: any, the same for all of them */
  uint32_t q_dtypes;           /* further ones of q: quantised by the engine */
  uint32_t cache_dtypes;       /* further ones of K and V in the cache */
  uint32_t out_dtypes;         /* further ones of out: fp8_e4m3 and fp4_e2m1 (nvfp4) are fused quantisation */
  int32_t preferred_layout;    /* the one that is fastest; 0: none is */
  int32_t page_multiple;       /* page sizes, in tokens, are multiples of it, if none are listed; 0: any. For an engine's backend
                                  the page size is the group's kernel_page_size, for the library's own kernels its page_size */
  int32_t max_page_size;       /* 0: any */
  int32_t preferred_page_size; /* 0: none is */
  int32_t page_sizes[8];       /* page sizes that they take, ended by a 0 unless all 8 are used; [0] 0: by page_multiple and
                                  max_page_size */
  int32_t head_dim_multiple;   /* head dims of q and k are multiples of it, if none are listed; 0: any */
  int32_t min_head_dim;        /* 0: any */
  int32_t max_head_dim;        /* 0: any */
  int32_t reserved;            /* 0 */
  int32_t head_dims[8];        /* those of q and k that they take, ended in the same way; [0] 0: by the numbers above */
} cgr_backend_needs;
#define CGR_BACKEND_NEEDS_INIT                                                                                       \
  { (uint32_t)sizeof(cgr_backend_needs), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0 }, 0, 0, 0, 0,       \
    { 0, 0, 0, 0, 0, 0, 0, 0 } }

#ifdef __cplusplus
}
#endif
#endif
