/* One representative step, over and over: layers as those of Llama 3 8B (32 query heads, 8 KV heads of 128, bf16, pages of 16)
 * with work of an engine between them, as a FULL graph of decodes, as a PIECEWISE one of decodes and a chunk, or eagerly. The
 * runtime has NVTX ranges, which do nothing without a tool. */
#ifndef CGR_PROFILES_SUPPORT_STEP32_H
#define CGR_PROFILES_SUPPORT_STEP32_H

#include "profiles/support/bench.h"

#define STEP32_CHUNK 64 /* tokens of the last request in a mixed step */

typedef struct step32_options {
  const char *device;
  const char *labels;               /* a file for graph_labels.json; NULL: none */
  int32_t layers, requests, length; /* tokens in each cache before the first step */
  int32_t replays, warmup;
  bool mixed; /* PIECEWISE, with a chunk */
  bool eager; /* decodes without a graph */
} step32_options;

typedef struct step32 {
  bench_engine engine;
  step32_options o;
  int32_t num_steps; /* so far */
  cgr_key key;       /* of the last step */
} step32;

/* "[device] [--layers N] [--requests N] [--length N] [--replays N] [--warm-up N] [--kind full|piecewise|none] [--labels
 * FILE]". On anything else, prints the usage and exits. The defaults are those of Llama 3 8B; on `host`, something small. */
step32_options step32_read(int argc, char **argv);

/* Makes the engine with its graph, which has labels, and the requests. */
void step32_open(step32 *s, const step32_options *options);
/* Steps that all replay the graph, or none of them; returns when they have completed. No more than warmup + replays in all. */
void step32_run(step32 *s, int32_t steps);
/* cgr_runtime_graph_labels, to be freed. */
char *step32_labels(const step32 *s);
/* Writes them to options.labels, if that is a file. */
void step32_write_labels(const step32 *s);
void step32_close(step32 *s);

/* Tells a profiler where to begin and to end: cudaProfilerStart, cudaProfilerStop. Nothing on the host device. */
void step32_fence(const step32 *s, bool begin);

#endif
