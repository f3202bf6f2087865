/* What the programs of this folder share: a clock, order statistics, a runtime over fixed q, k, v, and the head of a result. */
#ifndef CGR_PROFILES_SUPPORT_BENCH_H
#define CGR_PROFILES_SUPPORT_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "profiles/support/clock.h"

double bench_now_us(void);

/* Sorts `values` and returns the quantile, 0 .. 1. */
double bench_quantile(double *values, int32_t count, double quantile);

/* Prints what was being done and the last message, and exits, unless `status` is CGR_OK. */
void bench_check(cgr_status status, const char *what);

/* Prints a line and exits. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Device memory with random bf16 or fp16 in about [-1, 1). */
void *bench_make_tensor(cgr_device *dev, cudaStream_t stream, cgr_dtype dtype, size_t elements);
/* Frees the tensors, the stream and the device. */
void bench_close_device(cgr_device *dev, cudaStream_t stream, void *const *tensors, int32_t count);

/* The pages of a pool but the first two, its trash pages, shuffled: [num_pages - 2], to be freed. */
int32_t *bench_make_page_order(int64_t num_pages);

/* An engine without a model: attentions over fixed q, k and v, each layer with a KV pool of its own; empty kernels, or ones that
 * take a while, in place of the rest of a layer. */
typedef struct bench_engine {
  cgr_device *dev;
  cgr_runtime *rt;
  cudaStream_t stream;
  bool is_host;
  int32_t num_layers, num_q_heads, num_kv_heads, head_dim, page_size, max_requests, max_tokens, max_seq_len;
  int64_t num_pages; /* of each pool */
  int32_t dtype, fillers, draft_tokens;
  bench_spin filler;             /* of 0 iterations: an empty kernel */
  uint64_t *pace;                /* device memory: how long the first kernel takes, in ns; NULL: there is none */
  void *cache;                   /* [num_layers][num_pages][2][page_size][num_kv_heads][head_dim] */
  void *q, *k, *v, *out;         /* [max_tokens][heads][head_dim] */
  int32_t *rows;                 /* [max_requests] */
  int64_t next_page;             /* of the shuffled order */
  int32_t *page_order;           /* [num_pages - 2] */
  cgr_capture_estimate estimate; /* made before the capture, if asked for */
} bench_engine;

typedef struct bench_options {
  const char *device;
  int32_t num_layers, num_q_heads, num_kv_heads, head_dim, page_size, max_requests, max_tokens, max_seq_len;
  int64_t num_pages;
  int32_t ring_depth;     /* 0: the default */
  int32_t fillers;        /* kernels before each layer's attention */
  int32_t iterations;     /* of a filler, on every multiprocessor; 0: it is an empty kernel */
  uint64_t on_demand;     /* on-demand buffers */
  bool declares;          /* two buffers of the engine's own: 4 bytes of a token, 16 of a request */
  bool paced;             /* the first kernel takes as long as bench_set_pace says */
  cgr_graph_mode mode;    /* 0: FULL_DECODE_ONLY */
  const int32_t *buckets; /* NULL: the default ones */
  int32_t num_buckets;
  const cgr_bucket *mixed; /* the same */
  int32_t num_mixed;
  bool estimate;                /* before the capture */
  int32_t nvtx, labels, timing; /* as in cgr_config */
  int32_t draft_tokens;         /* guesses of a request in a step, some of which the last kernel accepts; 0: none */
  cgr_record_function record;   /* gets the bench_engine; NULL: bench_record */
} bench_options;

/* The engine's `record`. */
cgr_status bench_record(cgr_recorder *recorder, void *engine);

/* Makes device, pools, runtime and graphs. */
void bench_open(bench_engine *engine, const bench_options *options);
void bench_close(bench_engine *engine);

/* Sets the minimum time of a paced engine's steps, from the next one on: 0 at first. Waits for the device. */
void bench_set_pace(bench_engine *engine, uint64_t ns);

/* Opens `count` rows with pages for `capacity` tokens and `length` tokens in the cache. */
void bench_open_rows(bench_engine *engine, int32_t count, int32_t length, int32_t capacity);
void bench_close_rows(bench_engine *engine, int32_t count);
/* Brings the device's tables up to date. */
void bench_flush(bench_engine *engine);
/* Takes the next page of the shuffled order, which begins again at its end: pools of a benchmark may be shared. */
int32_t bench_take_page(bench_engine *engine);

/* Spins until step `seq` has completed, even if the runtime did not launch it. Asks the device nothing. */
uint64_t bench_completed(bench_engine *engine); /* the number of the last step that has */
void bench_wait(bench_engine *engine, uint64_t seq);

/* "# key: value" lines: GPU, driver, date, commit (from the environment CGR_COMMIT, else "unknown"). */
void bench_print_head(FILE *out, cgr_device *dev, const char *program);

#endif
