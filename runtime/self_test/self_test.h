/* cgr_runtime_self_test: each captured graph against eager steps, with one case per graph and three runs of it; a fourth if
 * they differ.
 *
 *   self_test.c   the call: checks, memory, the walk over the graphs     case.c      what a graph is tried with
 *   run.c         one step, and what it left                             compare.c   two runs, and the pages */
#ifndef CGR_RUNTIME_SELF_TEST_SELF_TEST_H
#define CGR_RUNTIME_SELF_TEST_SELF_TEST_H

#include "base/findings.h"
#include "runtime/runtime.h"

#define CGR__MAX_WATCHED 32
#define CGR__MAX_TEST_ITEMS (CGR__BUFFER_COUNT * CGR__MAX_GROUPS + CGR__MAX_WATCHED)

/* A stretch of device memory that runs are compared in. */
typedef struct cgr__test_item {
  const char *name;
  const void *data;
  cgr_dtype dtype; /* NONE: bytes */
  int64_t row_bytes, stride;
  int32_t rows;
  bool by_request; /* rows of requests without tokens do not count */
  int64_t offset;  /* in cgr__test_run.content */
} cgr__test_item;

/* What a graph is tried with. */
typedef struct cgr__test_case {
  cgr_key key;
  int32_t num_requests, num_tokens;
  int32_t set;                     /* whose tokens the key's steps have */
  int32_t *rows, *lens, *tokens;   /* [max_requests], and [max_tokens] */
  int32_t *before;                 /* [max_requests][num_length_sets] tokens of each set in the cache before the step */
  int32_t *first_page, *num_pages; /* [max_requests][num_groups] of the case's own order of the given ones */
  int32_t owned[CGR__MAX_GROUPS];  /* given pages that some request has: the first ones in that order */
  int32_t turn[CGR__MAX_GROUPS];   /* where the order begins in the list */
  int32_t num_items;
  cgr__test_item items[CGR__MAX_TEST_ITEMS];
  int64_t content_bytes;
} cgr__test_case;

/* What a run left. */
typedef struct cgr__test_run {
  uint64_t *digests;      /* [caches][2][num_pages + 1] */
  unsigned char *content; /* of the items */
} cgr__test_run;

typedef struct cgr__self_test {
  cgr_runtime *rt;
  cgr_self_test given;
  int32_t *pages; /* [num_groups][num_pages] the given ones, shuffled: the list that everything here means */
  cgr__findings findings;
  uint64_t random;
  int32_t next_free[CGR__MAX_GROUPS]; /* where in the list the pages begin that the next graph's requests leave alone */
  int32_t num_caches;                 /* layers that have one */
  int32_t caches[CGR__MAX_LAYERS];
  unsigned char *device;    /* [groups][pages] of each: page numbers, tokens before and after the step; then digests */
  int32_t *tokens;          /* the second and the third, on the host */
  uint64_t *filled[3];      /* digests of the pages as each run fills them */
  cgr__test_case test_case; /* one at a time */
  cgr__test_run runs[4];    /* the last: the first once more */
} cgr__self_test;

/* Tokens of length set `set` that request i has before the step, and after it. */
static inline int32_t cgr__test_before(const cgr__self_test *t, int32_t i, int32_t set) {
  return t->test_case.before[i * t->rt->setup.limits.num_sets + set];
}
static inline int32_t cgr__test_after(const cgr__self_test *t, int32_t i, int32_t set) {
  return cgr__test_before(t, i, set) + (set == t->test_case.set ? t->test_case.lens[i] : 0);
}

/* Where in the list the p-th page of the case's order is. */
static inline int32_t cgr__test_place(const cgr__self_test *t, int32_t group, int32_t p) {
  return (int32_t)(((int64_t)t->test_case.turn[group] + p) % t->given.num_pages);
}
/* The noise of a run. */
static inline int cgr__test_noise(int run) { return run % 3; }

/* Pages of a group that are looked at: the given ones, and the read-trash page. */
static inline int32_t cgr__test_num_pages(const cgr__self_test *t) { return t->given.num_pages + 1; }
static inline size_t cgr__test_digest_bytes(const cgr__self_test *t) {
  return (size_t)t->num_caches * 2 * (size_t)cgr__test_num_pages(t) * sizeof(uint64_t);
}

/* Entries of a list of pages of all groups. */
static inline size_t cgr__test_list_length(const cgr__self_test *t) {
  return (size_t)t->rt->setup.config.num_groups * (size_t)cgr__test_num_pages(t);
}
static inline size_t cgr__test_digest_offset(const cgr__self_test *t) {
  return (3 * cgr__test_list_length(t) * sizeof(int32_t) + 15) / 16 * 16;
}

/* case.c. False: the given pages do not hold it, which is a finding. */
bool cgr__test_compose(cgr__self_test *t, const cgr_key *key);
uint64_t cgr__test_random(cgr__self_test *t, uint64_t below);

/* run.c. Fills the pages with the noise of each run, and keeps what they sum up to. */
cgr_status cgr__test_fill_pages(cgr__self_test *t);
/* Runs the case, as run `index`, with this kind of step. `stale`: the byte that the step's buffers hold before it; `padding`: the
 * input id of padded tokens. */
cgr_status cgr__test_run_case(cgr__self_test *t, int index, cgr_graph_kind kind, int stale, int32_t padding);
/* Gives the case's rows back. */
void cgr__test_close_rows(cgr__self_test *t);

/* compare.c. Whether two runs of the case differ. Differences of two runs of the case become findings, with `text` for what they
 * are: "%s, ..."; returns how many. */
bool cgr__test_differs(const cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b);
int32_t cgr__test_compare(cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b, const char *in_a, const char *in_b);
/* Pages that the case's requests do not own must be as they were before run `index`. Whether they are. */
bool cgr__test_check_pages(cgr__self_test *t, int index);

#endif
