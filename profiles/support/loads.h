/* Batches of decodes, and how they change from step to step. */
#ifndef CGR_PROFILES_SUPPORT_LOADS_H
#define CGR_PROFILES_SUPPORT_LOADS_H

#include "profiles/support/bench.h"

typedef enum bench_load_kind {
  BENCH_UNCHANGED,          /* nothing but the header travels */
  BENCH_APPENDING,          /* one of every 16 rows gets a page, as decode at page size 16 does */
  BENCH_CHURNING,           /* one request leaves and another comes: close, open, 40 pages, 16 tokens in the cache */
  BENCH_MOVING_UP,          /* the same, but those behind the one that leaves move up, and the new one comes at the end */
  BENCH_UNCHANGED_STANDING, /* the same of the standing batch, which travels as edits */
  BENCH_APPENDING_STANDING,
  BENCH_CHURNING_STANDING,
  BENCH_GUESSING, /* each request has guesses that its last step left on the device, which accepts some; nothing is sent but
                     the header, and the host knows bounds of the lengths. Only in an engine with draft_tokens */
  BENCH_GUESSING_STANDING,
  BENCH_RESENT, /* one row takes turns with another: the whole batch travels, with a token for each */
  BENCH_NUM_LOADS
} bench_load_kind;

/* For tables. */
extern const char *const bench_load_names[BENCH_NUM_LOADS];

#define BENCH_PAGES_OF_A_NEW_REQUEST 40

typedef struct bench_load {
  bench_engine *engine;
  bench_load_kind kind;
  int32_t requests, length, capacity;
  int32_t *rows, *tokens; /* of the batch */
  int32_t *query_lens;    /* with guesses */
  uint32_t *flags;        /* the same */
  cgr_batch batch;
} bench_load;

/* Opens rows (one more than `requests` when RESENT) with `length` tokens in the cache and room for `steps` more. */
bench_load bench_load_open(bench_engine *engine, bench_load_kind kind, int32_t requests, int32_t length, int32_t steps);
void bench_load_close(bench_load *load);

/* Puts every row back to `length`, as its step 0 finds it. */
void bench_load_rewind(bench_load *load, int32_t length);

/* What is not part of step `index`: pages that rows have got. Steps count from 0 after a rewind. */
void bench_load_ahead(bench_load *load, int32_t index);
/* The step: what has changed, prepare, launch. */
cgr_status bench_load_step(bench_load *load, int32_t index, cgr_step *step);
/* What follows it, again not part of it. A step that has not replayed a graph ends the program. */
void bench_load_after(bench_load *load, const cgr_step *step);

#endif
