/* The library's fixed limits, each written once. The public headers state them where they bound an argument. */
#ifndef CGR_BASE_LIMITS_H
#define CGR_BASE_LIMITS_H

#include <stdint.h>

#define CGR__MAX_GROUPS 4
#define CGR__PAGE_SIZE_UNIT 16 /* page sizes are multiples of it; kernels read this many tokens of one page at a time */
#define CGR__MAX_PAGE_SIZE 1024
#define CGR__MAX_SETS 4        /* length sets */
#define CGR__MAX_REQUESTS 4096 /* in one step: the prologue and the planner keep them in shared memory */
#define CGR__MAX_ROWS (1 << 20)
#define CGR__MAX_TOKENS (1 << 24) /* in one step */
#define CGR__MAX_SEQ_LEN (1 << 30)
#define CGR__MAX_LAYERS 1024
#define CGR__MAX_Q_HEADS 1024
#define CGR__MAX_HEAD_DIM (1 << 16)
#define CGR__MAX_PARTS 4096        /* of an attention plan */
#define CGR__MAX_SPLITS 256        /* of a tile, batch-invariant */
#define CGR__MAX_CLASSES 16        /* of plans */
#define CGR__MAX_BUCKETS 512       /* of decode steps, and of mixed ones */
#define CGR__MAX_QUERY_LENS 8      /* captured uniform ones */
#define CGR__MAX_BACKENDS 8        /* of the engine */
#define CGR__MAX_VARIANTS 16       /* of steps, such as with and without adapters */
#define CGR__MAX_PROGRAMS 4        /* the target and its drafts */
#define CGR__MAX_DECLARED 64       /* buffers of the engine, workspaces and plans of backends */
#define CGR__MAX_REGIONS 8192      /* the runtime's own are 4 for each layer at most, and a few */
#define CGR__MAX_CHANGES (1 << 20) /* words of changed tables in one ring slot */
#define CGR__MAX_DRAFT_TOKENS 64   /* guesses of a request in a step */
#define CGR__MAX_STOP_TOKENS 64    /* of a row */
#define CGR__MIN_RING_DEPTH 2
#define CGR__MAX_RING_DEPTH 64
#define CGR__BLOCK_SCALE_ELEMENTS 16          /* neighbouring elements of a head that share a block scale */
#define CGR__MAX_CALL_ARGS 4096               /* bytes of arguments that a call keeps by value; also of a kernel's */
#define CGR__MAX_STRIDE ((int64_t)1 << 31)    /* elements; a view also is within 2^56 bytes */
#define CGR__MAX_ELEMENTS ((int64_t)1 << 43)  /* of one buffer */
#define CGR__MAX_WORKSPACE ((int64_t)1 << 40) /* bytes of one backend's */
#define CGR__MAX_PLAN ((int64_t)1 << 24)      /* bytes that its plan_host writes for a step */
#define CGR__PLAN_ALIGNMENT 64                /* of where it writes them */
#define CGR__KEPT_GUARDS 16                   /* steps whose guard refusals are kept after their results */
#define CGR__MAX_OPEN_LABELS 16               /* of the nodes of a graph, one inside the other */
#define CGR__MAX_STRUCT 4096                  /* bytes: a larger size in a sized struct is rubbish */
#define CGR__STRUCT_UNIT 8                    /* bytes: the alignment of every sized struct, so their sizes are multiples of it */
#define CGR__WIDE_LOOP 16                     /* elements in an inner loop that compilers make wide loads and stores of */
#define CGR__NAME_BYTES 32                    /* of names that are bounded at 31 characters, with the zero */

/* A cache line. What every step reads and writes is in few of them. */
#define CGR__CACHE_LINE_BYTES 64
#define CGR__CACHE_LINE __attribute__((aligned(CGR__CACHE_LINE_BYTES)))

#endif
