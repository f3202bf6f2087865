/* Attention by itself, below the runtime: a batch that the host planner has planned, and a graph of attention nodes over it, one
 * after the other. The time of a node includes no prologue and no planner, and an append only if asked for; it does include the
 * step from node to node (0.6 us on an H200, as for any chain of kernels). */
#ifndef CGR_PROFILES_SUPPORT_ATTENTION_ALONE_H
#define CGR_PROFILES_SUPPORT_ATTENTION_ALONE_H

#include "kernels/registry.h"
#include "profiles/support/attention_shapes.h"
#include "profiles/support/bench.h"

/* Costs to plan with in place of the kind's: they decide where the decode section is cut, never what comes out. */
typedef struct bench_plan_costs {
  int32_t cost_tile, cost_kv, snap;
} bench_plan_costs;

typedef struct bench_attention {
  cgr_device *dev;
  cudaStream_t stream;
  int32_t num_q_heads, num_kv_heads, head_dim, page_size;
  cgr_dtype dtype, cache_dtype; /* bf16 or fp16; of the cache the same, fp8 without factors, or i8 with those of tokens of K and
                                   of channels of V */
  int64_t num_pages;
  void *cache;   /* one pool: [num_pages][2][page_size][num_kv_heads][head_dim] */
  void *q, *out; /* [tokens][num_q_heads][head_dim] */
  void *k, *v;   /* [tokens][num_kv_heads][head_dim]: a kernel before each attention appends them; NULL: there is none */

  int32_t num_requests;
  const int32_t *query_lens, *seq_lens; /* [num_requests]; seq_lens with the new tokens */

  /* Pages are shuffled. Otherwise each request has pages of its own, which every node reads again. */
  int32_t num_shared; /* so many of the last requests read the same pages */
  bool cold;          /* each node reads pages that the nodes before it have not read, as long as the pool lasts */

  int32_t num_parts;             /* 0: as many as the device holds */
  const bench_plan_costs *costs; /* NULL: the kind's */
  int32_t decode_parts;          /* parts of a stripe with decodes when there is a prefill queue; 0: as planned */
  bool serial;                   /* all parts begin with the decode section */
  int32_t nodes, replays;        /* a replay is a launch of the graph, or several when it is short */
  int32_t samples;               /* tokens that are compared with the reference, of one KV head each; less than 3: 3 */
} bench_attention;

/* Sets heads, head dim, dtype, page size and the lengths of its requests; the caller frees query_lens and seq_lens. */
void bench_attention_set_shape(bench_attention *b, const bench_shape *s);

/* The largest of what was compared with the fp64 reference. */
typedef struct bench_attention_error {
  double out; /* of a head: the length of the difference over that of the head */
  double lse; /* not relative */
} bench_attention_error;

typedef struct bench_attention_result {
  double us;                       /* of a node; the median over the replays */
  int32_t cuts;                    /* parts that begin inside of a tile */
  int32_t num_items;               /* of the prefill queue */
  int32_t num_splits;              /* items of the prefill queue that are not a whole tile */
  int32_t num_parts, decode_parts; /* of a stripe: all, and those that have the decode section */
  bench_attention_error error;
} bench_attention_result;

/* Also compares some tokens of an earlier launch with the reference, and checks that the graph gave the same bits, took every
 * item of the prefill queue and tripped no guard. Exits if anything is wrong: the time of a broken plan is worth nothing. */
bench_attention_result bench_attention_run(const bench_attention *b);

/* The kernel kind of plain bf16 layers of this shape, and the CTAs of it that the device holds at once. */
const cgr__kernel_kind *bench_attention_kind(cgr_device *dev, int32_t num_q_heads, int32_t num_kv_heads, int32_t head_dim,
                                             int32_t *num_parts);

#endif
