/* Which sizes within the limits have no graph even when every key is captured. Cold. */
#include <stdio.h>

#include "runtime/capture/capture.h"
#include "tracing/text.h"

#define MAX_RANGES 3 /* in one line of the log, and lines of one kind */

/* Ranges of sizes, as text. */
typedef struct ranges {
  char text[128];
  size_t length;
  int32_t count, first, last; /* first, last: of the last one */
} ranges;

static void add_range(ranges *r, int32_t first, int32_t last) {
  cgr__text text = { r->text, sizeof r->text, r->length };
  r->first = first;
  r->last = last;
  if (r->count++ >= MAX_RANGES)
    return;
  cgr__text_add(&text, first == last ? "%s%d" : "%s%d .. %d", r->count > 1 ? ", " : "", first, last);
  r->length = text.length;
}

/* "3 .. 5 requests have", "1 request has" */
static void end_ranges(ranges *r, const char *unit) {
  cgr__text text = { r->text, sizeof r->text, r->length };
  bool one = r->count == 1 && r->last == 1;
  if (r->count > MAX_RANGES)
    cgr__text_add(&text, " and %d more range%s of", r->count - MAX_RANGES, cgr__plural(r->count - MAX_RANGES));
  cgr__text_add(&text, " %s%s %s", unit, one ? "" : "s", one ? "has" : "have");
}

static void report_uncovered(const cgr_runtime *rt, const char *text) {
  rt->setup.config.log(rt->setup.config.log_context, CGR_LOG_INFO, text);
}

/* --------------------------------------------------------------------------------------------------------- uniform steps */

/* Why a number of requests has no graph: its list has no such size, or only one that is too large; and whether the step then runs
 * in pieces or eagerly. */
enum { GAP_NONE, GAP_END, GAP_PADDED, GAP_END_PIECES, GAP_PADDED_PIECES, NUM_GAPS };

static int gap_of(const cgr_runtime *rt, const cgr__uniform_keys *keys, int32_t query_len, int32_t n) {
  const cgr__batch_shape shape = { n, n * query_len, query_len, query_len, 0, 0 };
  const cgr__graph_entry *best = cgr__graphs_best(&rt->graphs, &shape);
  if (best && best->key.kind == rt->setup.keys.uniform_kind)
    return GAP_NONE;
  bool is_listed = keys && keys->of_requests[n] >= 0;
  return (is_listed ? GAP_PADDED : GAP_END) + (best ? GAP_END_PIECES - GAP_END : 0);
}

/* Why a list has no such size. */
static void name_end(const cgr_runtime *rt, const cgr__uniform_keys *keys, char *cause, size_t size) {
  const cgr__key_lists *lists = &rt->setup.keys;
  if (!keys) {
    snprintf(cause, size, "no size of decode_buckets fits max_tokens");
    return;
  }
  int32_t last = rt->graphs.entry[keys->first + keys->count - 1].key.num_requests;
  snprintf(cause, size, "%s %d",
           rt->setup.config.num_decode_buckets == 0       ? "max_decode_bucket is"
           : last == lists->decode[lists->num_decode - 1] ? "decode_buckets end at"
                                                          : "the decode_buckets that fit end at",
           last);
}

static void tell_gap(const cgr_runtime *rt, const cgr__uniform_keys *keys, int32_t query_len, int gap, ranges *r) {
  char text[320], cause[64] = "those that hold them exceed max_padding";
  if (r->count == 0)
    return;
  end_ranges(r, "request");
  if (gap == GAP_END || gap == GAP_END_PIECES)
    name_end(rt, keys, cause, sizeof cause);
  snprintf(text, sizeof text, "uniform steps of %d token%s: %s no %sgraph (%s)", query_len, cgr__plural(query_len), r->text,
           gap >= GAP_END_PIECES ? "FULL " : "", cause);
  report_uncovered(rt, text);
}

static void tell_uniform(const cgr_runtime *rt, int32_t query_len) {
  const cgr_config *c = &rt->setup.config;
  const cgr__uniform_keys *keys = NULL;
  ranges found[NUM_GAPS] = { 0 };
  int32_t most = c->max_tokens / query_len, first = 1;
  int gap = GAP_NONE;
  most = most < c->max_requests ? most : c->max_requests;
  for (int32_t i = 0; i < rt->graphs.num_uniform; i++)
    if (rt->graphs.uniform[i].query_len == query_len)
      keys = &rt->graphs.uniform[i];
  for (int32_t n = 1; n <= most + 1; n++) {
    int now = n <= most ? gap_of(rt, keys, query_len, n) : GAP_NONE;
    if (now == gap)
      continue;
    if (gap != GAP_NONE)
      add_range(&found[gap], first, n - 1);
    gap = now;
    first = n;
  }
  for (gap = GAP_END; gap < NUM_GAPS; gap++)
    tell_gap(rt, keys, query_len, gap, &found[gap]);
}

/* ----------------------------------------------------------------------------------------------------------- mixed steps */

static bool serves_tokens(const cgr_runtime *rt, int32_t num_tokens) {
  const cgr__batch_shape shape = { 1, num_tokens, 0, INT32_MAX, 0, 0 };
  return cgr__graphs_best(&rt->graphs, &shape) != NULL;
}

/* Between two sizes, steps that are too small for the larger one have no graph. Returns the most tokens of such a step. */
static int32_t last_gap(const cgr_runtime *rt, int32_t before, int32_t size) {
  int32_t low = before, high = size; /* low, after the first step: has none; high: has one */
  while (high - low > 1) {
    int32_t middle = low + (high - low) / 2;
    *(serves_tokens(rt, middle) ? &high : &low) = middle;
  }
  return low;
}

static void tell_mixed_tokens(const cgr_runtime *rt) {
  const cgr__key_lists *lists = &rt->setup.keys;
  char text[256];
  ranges padded = { .count = 0 };
  int32_t before = 0;
  for (int32_t i = 0; i < lists->num_mixed; before = lists->mixed[i++].num_tokens) {
    int32_t last = last_gap(rt, before, lists->mixed[i].num_tokens);
    if (last > before)
      add_range(&padded, before + 1, last);
  }
  if (padded.count > 0) {
    end_ranges(&padded, "token");
    snprintf(text, sizeof text, "mixed steps: %s no graph (those that hold them exceed max_padding)", padded.text);
    report_uncovered(rt, text);
  }
  if (before < lists->limits->max_tokens) {
    ranges above = { .count = 0 };
    add_range(&above, before + 1, lists->limits->max_tokens);
    end_ranges(&above, "token");
    snprintf(text, sizeof text, "mixed steps: %s no graph (mixed_buckets end at %d)", above.text, before);
    report_uncovered(rt, text);
  }
}

/* Steps of first .. last tokens have graphs for up to `held` requests. Returns whether some have none. */
static bool tell_mixed_range(const cgr_runtime *rt, int32_t first, int32_t last, int32_t held, bool is_reported) {
  char text[256];
  ranges above = { .count = 0 };
  int32_t most = rt->setup.config.max_requests < last ? rt->setup.config.max_requests : last;
  if (held >= most)
    return false;
  if (!is_reported)
    return true;
  add_range(&above, held + 1, most);
  end_ranges(&above, "request");
  snprintf(text, sizeof text, "mixed steps of %d .. %d tokens: %s no graph (mixed_buckets hold %d)",
           first > held ? first : held + 1, last, above.text, held);
  report_uncovered(rt, text);
  return true;
}

static void tell_mixed_requests(const cgr_runtime *rt) {
  const cgr__key_lists *lists = &rt->setup.keys;
  const cgr_bucket *mixed = lists->mixed;
  int32_t count = 0, held = 0, last = 0; /* `held`: the most requests of the sizes from i on, which hold up to `last` tokens */
  for (int32_t i = lists->num_mixed - 1; i >= 0; i--) {
    if (mixed[i].num_requests <= held)
      continue;
    if (held > 0 && mixed[i].num_tokens < last)
      count += tell_mixed_range(rt, mixed[i].num_tokens + 1, last, held, count < MAX_RANGES);
    held = mixed[i].num_requests;
    last = mixed[i].num_tokens;
  }
  count += tell_mixed_range(rt, 1, last, held, count < MAX_RANGES);
  if (count > MAX_RANGES) {
    char text[128];
    snprintf(text, sizeof text, "mixed steps: %d more range%s of tokens have no graph for max_requests", count - MAX_RANGES,
             cgr__plural(count - MAX_RANGES));
    report_uncovered(rt, text);
  }
}

void cgr__tell_gaps(const cgr_runtime *rt) {
  const cgr__key_lists *lists = &rt->setup.keys;
  if (!rt->setup.config.log)
    return;
  for (int32_t i = 0; i < lists->num_query_lens && lists->uniform_kind != CGR_KIND_NONE; i++)
    tell_uniform(rt, lists->query_lens[i]);
  if (lists->mixed_kind == CGR_KIND_NONE)
    return;
  tell_mixed_tokens(rt);
  tell_mixed_requests(rt);
}
