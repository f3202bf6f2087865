/* Numbers of the mma kernels, for the registry and for the launcher; the kernels check them (traits.h, kernel.cuh). Plain C. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_KIND_H
#define CGR_KERNELS_CUDA_ATTENTION_SM80_KIND_H

#define CGR__MMA_TILE_LINES 64 /* (token, head) pairs of a full q tile */
#define CGR__MMA_FEW_LINES 16  /* in an item of at most this many lines the warps split the tokens */
#define CGR__MMA_TILE_KV 64    /* tokens of a KV tile */
#define CGR__MMA_MAX_HEAD_DIM 256
#define CGR__MMA_MAX_CTAS 2 /* per multiprocessor, for which the kernels leave registers */

/* Bytes of shared memory of a CTA. The first is dynamic, for a head dim: two KV tiles and three query tiles of few lines, of
 * 2-byte elements; instances for codes of 8 bits take less. The second is the most static memory, plus the 1 KB that the system
 * takes. */
#define CGR__MMA_SHARED(dim) (608 * (dim))
#define CGR__MMA_SHARED_STATIC (1536 + 1024)

/* The most dynamic shared memory that a launch takes because of cgr__attention_args.shared_bytes: enough for what devices have
 * now (76 KB on compute capability 9.0). Every device of 8.0 or later allows a CTA 99 KB. */
#define CGR__MMA_MOST_PADDING (80 << 10)

#endif
