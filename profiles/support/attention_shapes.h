/* The batches and layers that profiles/attention_cost measures, what each needs at least, and what it should take at most. */
#ifndef CGR_PROFILES_SUPPORT_ATTENTION_SHAPES_H
#define CGR_PROFILES_SUPPORT_ATTENTION_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#include "cgr/cgr.h"

#define BENCH_PAGE_SIZE 16
#define BENCH_PEAK_FLOPS 650e12       /* per second, that the best kernels reach */
#define BENCH_PEERS_BANDWIDTH 4.56e12 /* bytes per second that a plain read streamed at where the peers were measured */

/* A batch: decodes, then chunks of prompts, then requests without new tokens. */
typedef struct bench_shape {
  const char *name;
  int32_t decodes, decode_len;          /* decode requests and their KV length with the new token; -1: log-normal lengths */
  int32_t prefills, query_len, context; /* chunks of query_len tokens after `context` tokens */
  int32_t empty;
  int32_t steps; /* to measure; 0: none */
  int32_t num_q_heads, num_kv_heads, head_dim;
  cgr_dtype dtype, cache_dtype;
  double peer_us; /* the best peer's time in profiles/peers.json; 0: none has one */
  double floors;  /* the target, in floors; 0: 1.02 floors and 6 us */
} bench_shape;

/* The first list is of one layer, that of an 8B Llama, and of the batches that peers were measured with; the second of other
 * layers. */
enum { BENCH_SHAPES_FIRST, BENCH_SHAPES_OTHER, BENCH_SHAPE_LISTS };

/* False past the end. */
bool bench_shape_get(int list, int32_t index, bench_shape *shape);

int32_t bench_shape_requests(const bench_shape *s);
int32_t bench_shape_tokens(const bench_shape *s);                    /* new ones */
int32_t bench_shape_query_len(const bench_shape *s, int32_t i);      /* of request i */
int32_t bench_shape_seq_len(const bench_shape *s, int32_t i);        /* with the new tokens */
int64_t bench_shape_pages(const bench_shape *s, int32_t new_tokens); /* of all requests, decodes with that much room to grow */

double bench_shape_page_bytes(const bench_shape *s);
double bench_shape_bytes(const bench_shape *s); /* of K and V that are read */
double bench_shape_flops(const bench_shape *s); /* of both products, where the mask lets tokens through */

/* In microseconds, where a plain read streams at `bandwidth` bytes per second: the bytes over that, or the operations over 650
 * TFLOP/s, whichever takes longer. */
double bench_shape_floor_us(const bench_shape *s, double bandwidth);

/* The best peer's time, as it would be at this bandwidth if bytes are the floor, or 1.02 floors and 6 us (or as many floors as
 * the shape says), whichever is less; 0: there is none, because no peer has been measured. */
double bench_shape_target_us(const bench_shape *s, double bandwidth);

#endif
