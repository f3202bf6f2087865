/* The memory of a lane's batches, and which batch layout belongs to which step. */
#include "requests/lane_batches.h"

#include <string.h>

#include "base/memory.h"
#include "requests/schedule.h"

_Static_assert(sizeof(cgr__batch_layout) == CGR__CACHE_LINE_BYTES, "a batch layout is one cache line");

/* ---------------------------------------------------------------------------------------------------------- batch layouts */

static size_t rounded_to_cache_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes of the arrays of one batch layout. */
static size_t arrays_bytes(int32_t max_requests) {
  size_t r = (size_t)max_requests;
  return 3 * rounded_to_cache_line(r * sizeof(int32_t)) + rounded_to_cache_line(r * sizeof(uint64_t));
}

size_t cgr__batch_layouts_bytes(int32_t max_requests, int32_t ring_depth) {
  size_t count = (size_t)ring_depth + CGR__SPARE_BATCH_LAYOUTS;
  return rounded_to_cache_line(count * sizeof(cgr__batch_layout)) +
         rounded_to_cache_line((size_t)ring_depth * sizeof(cgr__batch_layout *)) + count * arrays_bytes(max_requests);
}

void cgr__batch_layouts_init(cgr__batch_layouts *pool, int32_t max_requests, int32_t ring_depth, void *memory) {
  unsigned char *at = memory;
  size_t count = (size_t)ring_depth + CGR__SPARE_BATCH_LAYOUTS;
  size_t words = rounded_to_cache_line((size_t)max_requests * sizeof(int32_t));
  pool->depth = ring_depth;
  pool->mask = (ring_depth & (ring_depth - 1)) == 0 ? (uint32_t)ring_depth - 1 : 0;
  pool->all = (cgr__batch_layout *)(void *)at;
  at += rounded_to_cache_line(count * sizeof *pool->all);
  pool->of_seq = (cgr__batch_layout **)(void *)at;
  at += rounded_to_cache_line((size_t)ring_depth * sizeof *pool->of_seq);
  for (size_t i = 0; i < count; i++) {
    cgr__batch_layout *c = &pool->all[i];
    c->rows = (int32_t *)(void *)at;
    c->query_lens = (int32_t *)(void *)(at + words);
    c->flags = (uint32_t *)(void *)(at + 2 * words);
    c->tags = (uint64_t *)(void *)(at + 3 * words);
    at += arrays_bytes(max_requests);
  }
}

void cgr__batch_layouts_launch(cgr__batch_layouts *pool, uint64_t seq, cgr__batch_layout *batch) {
  cgr__batch_layout **of_seq = cgr__batch_layout_place(pool, seq);
  if (*of_seq == batch)
    return;
  if (*of_seq)
    (*of_seq)->uses--;
  if (batch)
    batch->uses++;
  *of_seq = batch;
}

/* ----------------------------------------------------------------------------------------------------------------- memory */

#define FEW_TOKENS (1 << 18) /* 2 MB, with room to move them */

/* Tokens of the standing batch that wait for a step. Edits from one batch to another need room for both. Where it takes
 * little memory there is more, for edits in other orders. */
static int32_t tokens_kept(const cgr__limits *limits) {
  int64_t all = (int64_t)limits->max_rows * limits->max_tokens, two = 2 * (int64_t)limits->max_tokens;
  int64_t few = all < FEW_TOKENS ? all : FEW_TOKENS;
  return (int32_t)(two > few ? two : few);
}

/* Between two steps, edits may make every row a member. */
static void lay_out_standing(cgr__members *standing, const cgr__limits *limits, cgr__block *b) {
  size_t rows = limits->max_requests > 0 ? (size_t)limits->max_rows : 0;
  standing->max_requests = limits->max_requests;
  standing->max_tokens = limits->max_tokens;
  standing->max_kept = tokens_kept(limits);
  standing->layout.rows = cgr__block_take(b, rows, sizeof(int32_t));
  standing->layout.query_lens = cgr__block_take(b, rows, sizeof(int32_t));
  standing->layout.flags = cgr__block_take(b, rows, sizeof(uint32_t));
  standing->layout.tags = cgr__block_take(b, rows, sizeof(uint64_t));
  standing->irregular = cgr__block_take(b, rows, sizeof *standing->irregular);
  standing->tokens = cgr__block_take(b, 2 * (size_t)standing->max_kept, sizeof(int32_t));
  standing->dirty = cgr__block_take(b, rows, sizeof(int32_t));
  standing->dirty_bit = cgr__block_take(b, (rows + 63) / 64, sizeof(uint64_t));
  standing->schedule = cgr__block_take(b, CGR__SCHEDULE_STEPS, sizeof *standing->schedule);
}

/* The batch layouts come last: what they refer to lays itself out. Returns where they begin. */
static void *lay_out_batches(cgr__lane_batches *batches, const cgr__limits *limits, cgr__block *b) {
  lay_out_standing(&batches->members, limits, b);
  return cgr__block_take(b, 1, cgr__batch_layouts_bytes(limits->max_requests, limits->ring_depth));
}

size_t cgr__lane_batches_bytes(const cgr__limits *limits) {
  cgr__lane_batches batches;
  cgr__block b = { NULL, 0 };
  (void)lay_out_batches(&batches, limits, &b);
  return b.used;
}

void cgr__lane_batches_init(cgr__lane_batches *batches, const cgr__limits *limits, void *memory) {
  cgr__block b = { memory, 0 };
  memset(batches, 0, sizeof *batches);
  void *layouts = lay_out_batches(batches, limits, &b);
  cgr__batch_layouts_init(&batches->layouts, limits->max_requests, limits->ring_depth, layouts);
  batches->members.version = 1;
  batches->members.first_irregular = batches->members.last_irregular = -1;
}
