/* cgr_runtime_self_test: each captured graph against eager steps, with one case per graph and three runs of it; a fourth if
 * they differ. Each graph is tried with two cases: one that is smaller than the graph, whose first request is as long as can be,
 * and a full one, whose requests all begin at position 0, the chunk of a mixed one too. A run has four steps:
 *
 *   the other size: eager, of one of the case's rows, with another number of tokens than the key's. The same in every run.
 *
 *   the decoy: eager, of the same padded key, with other tokens, lengths and staged data. The case's rows begin at length 0,
 *   which resets what a model keeps for a row. It leaves wrong values wherever the engine computes outside of cgr's buffers. One
 *   run has a second one before it, one a second one after it.
 *
 *   the case: eager or a replay. This is what is compared.
 *
 *   the next: of the same kind as the case, whose rows go on from where it has left them; as many requests and tokens as the key
 *   has room for.
 *
 *   self_test.c   the call: memory, the walk over the graphs     check.c     what the caller gives
 *   case.c        what a graph is tried with                     requests.c  a request: its length and its pages
 *   decoy.c       the steps around it
 *   run.c         the steps, and what they left                  data.c      the engine's staged buffers
 *   compare.c     two runs, and the pages */
#ifndef CGR_RUNTIME_CAPTURE_SELF_TEST_SELF_TEST_H
#define CGR_RUNTIME_CAPTURE_SELF_TEST_SELF_TEST_H

#include "kernels/quantise.h"
#include "base/findings.h"
#include "runtime/runtime.h"

#define CGR__MAX_WATCHED 32
#define CGR__MAX_TEST_ITEMS (CGR__BUFFER_COUNT * CGR__MAX_GROUPS + 2 + 2 * CGR__MAX_WATCHED)

/* What changes the seed of a request of the case to that of its tokens in the next step, in the decoy, and in a step of another
 * size; not the low bits, which count its tokens. */
#define CGR__SEED_OF_NEXT ((uint64_t)1 << 63)
#define CGR__SEED_OF_DECOY ((uint64_t)1 << 62)
#define CGR__SEED_OF_OTHER ((uint64_t)1 << 61)

/* A stretch of device memory that runs are compared in. */
typedef struct cgr__test_item {
  const char *name;
  const void *data; /* NULL: on the host, of the step's result */
  cgr_dtype dtype;  /* NONE: bytes */
  int64_t row_bytes, stride;
  int32_t rows;
  const int32_t *lens; /* rows of requests without tokens do not count; NULL: every row does */
  bool of_next;        /* looked at after the next step */
  bool is_sampled;     /* tokens that have been sampled */
  int64_t offset;      /* in cgr__test_run.content */
} cgr__test_item;

/* What a step gets. */
typedef struct cgr__test_batch {
  cgr_key key;
  int32_t num_requests, num_tokens;
  int32_t *rows, *lens, *tokens; /* [max_requests], and [max_tokens] */
  uint64_t *seeds;               /* [max_requests] of a request's tokens and of its data in staged buffers */
} cgr__test_batch;

/* Requests of the case, or other ones of a decoy. */
typedef struct cgr__test_requests {
  int32_t count, num_tokens;
  int32_t *rows, *lens;            /* [max_requests] */
  uint64_t *seeds;                 /* [max_requests] as of a batch */
  int32_t *before;                 /* [max_requests][num_length_sets] tokens of each set in the cache before the step */
  int32_t *first_page, *num_pages; /* [max_requests][num_groups] of the requests' own order of the given ones */
  int32_t owned[CGR__MAX_GROUPS];  /* given pages that some request has: the first ones in that order */
  int32_t turn[CGR__MAX_GROUPS];   /* where the order begins in the list */
  bool is_twin;                    /* of a decoy: as many requests and tokens as in the case, in its order */
} cgr__test_requests;

/* What a graph is tried with. */
typedef struct cgr__test_case {
  cgr_key key;
  int32_t set;           /* whose tokens the key's steps have */
  cgr__test_requests of; /* the requests: those of the case, then some that come in only in the next step */
  int32_t num_requests;  /* of the case */
  int32_t *first_lens;   /* [max_requests] tokens of the requests in the decoy */
  int32_t *next_lens;    /* the same in the next step; 0: it is not in it */
  int32_t num_next;      /* requests of the next step */
  int32_t num_next_tokens;
  bool next_has_sampled; /* its first tokens are those that the case has sampled */
  int32_t num_items;
  cgr__test_item items[CGR__MAX_TEST_ITEMS];
  int64_t content_bytes;
} cgr__test_case;

/* What a run left. */
typedef struct cgr__test_run {
  uint64_t *digests;       /* [tensors][num_pages + 1] */
  unsigned char *content;  /* of the items */
  bool has_next;           /* what it has of the next step */
  cgr__record_calls calls; /* that made the step: of a replay those of its graph's capture, and those at breaks */
} cgr__test_run;

/* What the cases lacked whose decoys could not be twins. */
typedef struct cgr__test_lacks {
  int32_t num_cases, num_tried;
  int32_t rows;  /* that are enough; 0: rows were not lacking */
  int64_t pages; /* the same of the given pages */
} cgr__test_lacks;

typedef struct cgr__self_test {
  cgr_runtime *rt;
  cgr_self_test given;
  int32_t *pages; /* [num_groups][num_pages] the given pages, shuffled; page numbers in this folder are places in this list */
  cgr__findings findings;
  uint64_t random;
  int32_t next_free[CGR__MAX_GROUPS]; /* where in the list the pages begin that the next graph's requests leave alone */
  int32_t num_caches;                 /* layers that have one */
  int32_t caches[CGR__MAX_LAYERS];
  unsigned char *device;    /* [groups][pages] of each: page numbers, tokens before and after the step; then digests */
  int32_t *tokens;          /* the second and the third, on the host */
  uint64_t *filled[3];      /* digests of the pages as each run fills them */
  bool is_full;             /* the case has as much as the graph, and its requests begin at position 0 */
  cgr__test_case test_case; /* one at a time */
  cgr__test_requests decoy; /* the requests of a decoy that are in no other step */
  cgr__test_lacks lacks;
  cgr__test_batch batch; /* of one step */
  int64_t *order;        /* [2 * max_requests] */
  unsigned char *block;  /* of the arrays of these, and of `data` */
  unsigned char *data;   /* of the staged buffers that got a range, for one step */
  cgr__test_run runs[4]; /* the last: the first once more */
} cgr__self_test;

/* Tokens of length set `set` that request i has before the step, and after it. */
static inline int32_t cgr__test_before(const cgr__self_test *t, const cgr__test_requests *of, int32_t i, int32_t set) {
  return of->before[i * t->rt->setup.limits.num_sets + set];
}
static inline int32_t cgr__test_after(const cgr__self_test *t, const cgr__test_requests *of, int32_t i, int32_t set) {
  return cgr__test_before(t, of, i, set) + (set == t->test_case.set ? of->lens[i] : 0);
}

/* Where in the list the p-th page of the requests' order is. */
static inline int32_t cgr__test_place(const cgr__self_test *t, const cgr__test_requests *of, int32_t group, int32_t p) {
  return (int32_t)(((int64_t)of->turn[group] + p) % t->given.num_pages);
}
/* The noise of a run. */
static inline int cgr__test_noise(int run) { return run % 3; }

/* Pages of a group that are looked at: the given ones, and the read-trash page. */
static inline int32_t cgr__test_num_pages(const cgr__self_test *t) { return t->given.num_pages + 1; }

/* Tensors of a cache: keys, values, and the factors of each, which are looked at if every token has its own. */
#define CGR__TEST_TENSORS 4
static inline int32_t cgr__test_num_tensors(const cgr__self_test *t) { return CGR__TEST_TENSORS * t->num_caches; }
static inline const cgr_layer *cgr__test_layer(const cgr__self_test *t, int32_t tensor) {
  return &t->rt->setup.layers[t->caches[tensor / CGR__TEST_TENSORS]];
}
static inline bool cgr__test_is_factor(int32_t tensor) { return tensor % CGR__TEST_TENSORS >= 2; }
/* Its base is NULL when there is no such tensor. */
static inline cgr_kv_view cgr__test_view(const cgr__self_test *t, int32_t tensor) {
  const cgr_layer *l = cgr__test_layer(t, tensor);
  const cgr_kv_view *view = tensor % 2 ? &l->v : &l->k;
  return cgr__test_is_factor(tensor) ? cgr__factors_of_tokens(view, l->num_kv_heads) : *view;
}
static inline bool cgr__test_has_tensor(const cgr__self_test *t, int32_t tensor) {
  return cgr__test_view(t, tensor).base != NULL;
}

static inline size_t cgr__test_digest_bytes(const cgr__self_test *t) {
  return (size_t)cgr__test_num_tensors(t) * (size_t)cgr__test_num_pages(t) * sizeof(uint64_t);
}

/* Entries of a list of pages of all groups. */
static inline size_t cgr__test_list_length(const cgr__self_test *t) {
  return (size_t)t->rt->setup.config.num_groups * (size_t)cgr__test_num_pages(t);
}
static inline size_t cgr__test_digest_offset(const cgr__self_test *t) {
  return (3 * cgr__test_list_length(t) * sizeof(int32_t) + 15) / 16 * 16;
}

/* check.c */
cgr_status cgr__test_check(const cgr_runtime *rt, cgr_self_test *given);

/* case.c. False: the given pages do not hold it, which is a finding. */
bool cgr__test_compose(cgr__self_test *t, const cgr_key *key);

/* requests.c */
uint64_t cgr__test_random(cgr__self_test *t, uint64_t below);
static inline int32_t cgr__test_pick(cgr__self_test *t, int32_t below) { return (int32_t)cgr__test_random(t, (uint64_t)below); }
/* A request of `len` new tokens, after some that fit its `share` of pages; in other length sets it has any that fit. Returns with
 * how many tokens it can go on in the next step, at most `next`. */
int32_t cgr__test_add_request(cgr__self_test *t, cgr__test_requests *of, int32_t len, int32_t next, int32_t share);
/* Gives request i the pages that it needs, with `next` more tokens. */
void cgr__test_own_pages(cgr__self_test *t, cgr__test_requests *of, int32_t i, int32_t next);
int32_t cgr__test_smallest_page(const cgr_runtime *rt);
/* For qsort of int64_t: ascending. */
int cgr__test_by_length(const void *a, const void *b);

/* decoy.c. The tokens of the requests in the decoy and in the next step. */
void cgr__test_compose_around(cgr__self_test *t);
/* Draws a decoy's own requests, on pages that no other request owns: with the counts of the case if there is room, else as many
 * as there is room for. */
void cgr__test_compose_decoy(cgr__self_test *t);
/* Logs which of max_rows and num_pages were too few for decoys that are twins of the case. */
void cgr__test_tell_lacks(const cgr__self_test *t);
/* Fill t->batch: the case's rows in the decoy, with tokens of `seed`; the decoy's own requests; the case; the next step; one
 * request of the case, in a step of another size than the key's, which fits if the answer is true. */
void cgr__test_batch_first(cgr__self_test *t, uint64_t seed);
void cgr__test_batch_decoy(cgr__self_test *t);
void cgr__test_batch_case(cgr__self_test *t, cgr_graph_kind kind);
cgr_status cgr__test_batch_next(cgr__self_test *t, cgr_graph_kind kind);
bool cgr__test_batch_other(cgr__self_test *t);

/* data.c: the engine's staged buffers. Checks cgr_self_test.staged. */
cgr_status cgr__test_check_data(const cgr_runtime *rt, const cgr_self_test *given);
/* Logs which buffers got no range. */
void cgr__test_tell_unvaried(const cgr__self_test *t);
/* How many bytes the data of one step takes. */
size_t cgr__test_data_bytes(const cgr__self_test *t);
/* Data for t->batch, an entry for each buffer of tokens or requests that got a range; returns how many. */
int32_t cgr__test_batch_data(cgr__self_test *t, cgr_staged staged[]);
/* Sets a row's data. */
cgr_status cgr__test_set_row_data(cgr__self_test *t, int32_t row, uint64_t seed);

/* run.c. Fills the pages with the noise of each run, and keeps what they sum up to. */
cgr_status cgr__test_fill_pages(cgr__self_test *t);
/* Runs the case, as run `index`, with this kind of step, between its decoy and its next step. `stale`: the byte that the step's
 * buffers hold before it; `padding`: the input id of padded tokens. */
cgr_status cgr__test_run_case(cgr__self_test *t, int index, cgr_graph_kind kind, int stale, int32_t padding);
/* The next rows that are opened have other numbers than the last ones. */
cgr_status cgr__test_shuffle_rows(cgr__self_test *t);
/* Gives all rows back. */
void cgr__test_close_rows(cgr__self_test *t, cgr__test_requests *of);

/* compare.c. Whether two runs of the case differ. Differences of two runs of the case become findings, with `text` for what they
 * are: "%s, ..."; returns how many. */
bool cgr__test_differs(const cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b);
int32_t cgr__test_compare(cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b, const char *in_a, const char *in_b);
/* What an eager step is made of must be in the replayed graph too: how often each call of `record` was made. */
void cgr__test_compare_calls(cgr__self_test *t, const cgr__record_calls *eager, const cgr__record_calls *graph);
/* Pages that the case's requests do not own must be as they were before run `index`. Whether they are. */
bool cgr__test_check_pages(cgr__self_test *t, int index);

#endif
