/* cgr_plan_size and cgr_plan_build: validation, then planners/attention/plan_host.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/planners.h"
#include "planners/attention/plan_host.h"

#define MAX_COST ((int64_t)1 << 62)

static cgr_status check_ranges(const char *function, const cgr_plan_input *in) {
  const cgr__field_range ranges[] = {
    { "num_requests", in->num_requests, 0, 1 << 24 },
    { "num_parts", in->num_parts, 1, CGR__MAX_PARTS },
    { "head_blocks", in->head_blocks, 0, CGR__MAX_Q_HEADS },
    { "decode_query_len", in->decode_query_len, 0, 4096 },
    { "decode_tile_kv", in->decode_tile_kv, 0, 4096 },
    { "cost_tile", in->cost_tile, 0, 1 << 20 },
    { "cost_kv", in->cost_kv, 0, 1 << 20 },
    { "snap", in->snap, 0, 1 << 20 },
    { "prefill_tile_q", in->prefill_tile_q, 0, 4096 },
    { "prefill_tile_kv", in->prefill_tile_kv, 0, 4096 },
    { "window_left", in->window_left, 0, INT32_MAX },
    { "window_right", in->window_right, 0, in->bidirectional ? INT32_MAX : 0 },
    { "max_splits", in->max_splits, 0, CGR__MAX_SPLITS },
  };
  return CGR__CHECK_RANGES(function, ranges);
}

static int32_t or_default(int32_t value, int32_t other) { return value != 0 ? value : other; }

static cgr__plan_class class_of(const cgr_plan_input *in) {
  return (cgr__plan_class){ .num_parts = in->num_parts,
                            .stripes = 1,
                            .head_blocks = or_default(in->head_blocks, 1),
                            .decode_query_len = or_default(in->decode_query_len, 1),
                            .decode_tile_kv = or_default(in->decode_tile_kv, 64),
                            .cost_tile = in->cost_kv == 0 ? 2 : in->cost_tile,
                            .cost_kv = or_default(in->cost_kv, 1),
                            .snap = in->snap,
                            .prefill_tile_q = or_default(in->prefill_tile_q, 64),
                            .prefill_tile_kv = or_default(in->prefill_tile_kv, 64),
                            .window_left = in->window_left,
                            .window_right = in->window_right,
                            .bidirectional = in->bidirectional != 0,
                            .max_splits = in->max_splits,
                            .max_requests = in->num_requests };
}

/* The sum of query_lens, which sizes the prefill queue. */
static cgr_status count_tokens(const char *function, const cgr_plan_input *in, int64_t *tokens) {
  *tokens = 0;
  if (in->num_requests > 0 && !in->query_lens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: query_lens is NULL, expected %d lengths", function, in->num_requests);
  for (int32_t i = 0; i < in->num_requests; i++) {
    if (in->query_lens[i] < 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: query_lens[%d] is %d, expected at least 0", function, i,
                       in->query_lens[i]);
    *tokens += in->query_lens[i];
    if (*tokens > INT32_MAX - 64)
      return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS, "%s: tokens of requests 0 .. %d are %lld, expected at most %d", function, i,
                       (long long)*tokens, INT32_MAX - 64);
  }
  return CGR_OK;
}

static cgr_status read_input(const char *function, const cgr_plan_input *input, cgr_plan_input *in, cgr__plan_class *c) {
  int64_t tokens;
  char what[64];
  snprintf(what, sizeof what, "%s: input", function);
  CGR__TRY(cgr__sized_read(what, "CGR_PLAN_INPUT_INIT", input, in, sizeof *in));
  CGR__TRY(check_ranges(function, in));
  CGR__TRY(count_tokens(function, in, &tokens));
  *c = class_of(in);
  int64_t entries = cgr__plan_max_entries(c, in->num_requests, (int32_t)tokens);
  if (entries * c->head_blocks > INT32_MAX)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: query_lens, prefill_tile_q and head_blocks make up to %lld tiles, expected at most %d", function,
                     (long long)(entries * c->head_blocks), INT32_MAX);
  c->max_entries = (int32_t)entries;
  return CGR_OK;
}

cgr_status cgr_plan_size(const cgr_plan_input *input, size_t *plan_size) {
  cgr_plan_input in;
  cgr__plan_class c;
  CGR__REQUIRE(plan_size, "cgr_plan_size");
  CGR__TRY(read_input("cgr_plan_size", input, &in, &c));
  *plan_size = (size_t)cgr__plan_bytes(&c);
  return CGR_OK;
}

static cgr_status check_lengths(const cgr_plan_input *in, const cgr__plan_class *c) {
  int64_t cost = 0;
  if (in->num_requests > 0 && !in->seq_lens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_plan_build: seq_lens is NULL, expected %d lengths", in->num_requests);
  for (int32_t i = 0; i < in->num_requests; i++) {
    if (in->seq_lens[i] < in->query_lens[i] || in->seq_lens[i] > 1 << 30)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: seq_lens[%d] is %d, expected %d (query_lens[%d]) .. 2^30", i,
                       in->seq_lens[i], in->query_lens[i], i);
    if (in->query_lens[i] == 0 || in->query_lens[i] > c->decode_query_len)
      continue; /* costs nothing in the decode section */
    cgr__plan_range kv = cgr__plan_decode_range(c, in->query_lens[i], in->seq_lens[i]);
    cost += c->head_blocks * cgr__plan_tile_cost(c, kv.end - kv.begin);
    if (cost > MAX_COST)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_plan_build: seq_lens, head_blocks, cost_tile and cost_kv: requests 0 .. %d cost more than 2^62, "
                       "expected less",
                       i);
  }
  return CGR_OK;
}

static cgr_status check_plan(const cgr__plan_class *c, const void *plan, size_t plan_size) {
  CGR__REQUIRE(plan, "cgr_plan_build");
  if (plan_size < (size_t)cgr__plan_bytes(c))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: plan_size is %zu, expected at least %lld (cgr_plan_size)",
                     plan_size, (long long)cgr__plan_bytes(c));
  if ((uintptr_t)plan % 16 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: plan is %p, expected a multiple of 16", plan);
  return CGR_OK;
}

/* One block: the planner's scratch, then the running sum of query_lens. */
cgr_status cgr_plan_build(const cgr_plan_input *input, void *plan, size_t plan_size) {
  cgr_plan_input in;
  cgr__plan_class c;
  CGR__TRY(read_input("cgr_plan_build", input, &in, &c));
  CGR__TRY(check_plan(&c, plan, plan_size));
  CGR__TRY(check_lengths(&in, &c));
  size_t bytes = cgr__plan_scratch_bytes(&c);
  size_t words = ((size_t)in.num_requests + 1) * sizeof(int32_t);
  unsigned char *scratch = malloc(bytes + words);
  if (!scratch)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_plan_build: no host memory for %d requests (%zu bytes)", in.num_requests,
                     bytes + words);
  int32_t *query_start = (int32_t *)(void *)(scratch + bytes);
  query_start[0] = 0;
  for (int32_t i = 0; i < in.num_requests; i++)
    query_start[i + 1] = query_start[i] + in.query_lens[i];
  memset(plan, 0, (size_t)cgr__plan_bytes(&c));
  cgr__plan_fill(&c, query_start, in.seq_lens, in.num_requests, scratch, plan);
  free(scratch);
  return CGR_OK;
}
