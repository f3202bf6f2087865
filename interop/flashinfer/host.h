/* FlashInfer's plans on the host. */
#ifndef CGR_INTEROP_FLASHINFER_HOST_H
#define CGR_INTEROP_FLASHINFER_HOST_H

#include "cgr/interop/flashinfer.h"
#include "interop/flashinfer/format.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__flashinfer_arrays {
  const int32_t *qo_indptr, *kv_indptr, *live_requests; /* qo_indptr and live_requests may be NULL */
} cgr__flashinfer_arrays;

/* Rows of a q tile, for requests of `packed_len` packed rows. */
int32_t cgr__flashinfer_cta_tile_q(const cgr__flashinfer_key *key, int64_t packed_len);

/* Sets cta_tile_q and what follows from it. */
void cgr__flashinfer_set_tile(cgr__flashinfer_key *key, int32_t cta_tile_q);

/* Sets the offsets; tiles and split_kv are known. */
void cgr__flashinfer_set_places(cgr__flashinfer_key *key);

/* Rows of the partials, each with all query heads. */
int64_t cgr__flashinfer_partial_rows(const cgr__flashinfer_key *key);

/* Whether a plan takes the lengths. Otherwise `*request` is the first that is wrong (-1: qo_indptr does not begin at 0) and
 * `*rows` whether its rows are. */
bool cgr__flashinfer_lengths_fit(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, int32_t *request,
                                 bool *rows);

/* What a batch with lengths that fit makes. */
typedef struct cgr__flashinfer_batch {
  int32_t chunk, longest;  /* pages */
  bool splits;             /* a request has more than one chunk */
  int64_t tiles, partials; /* at most 2^62; partials: rows times their chunks */
} cgr__flashinfer_batch;
cgr__flashinfer_batch cgr__flashinfer_measure(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays);

/* Completes the key of a plan without a graph, or of one with a fixed chunk size whose split_kv is not forced. False: too many
 * tiles for 32 bits; `batch` tells. */
bool cgr__flashinfer_complete_key(cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, cgr__flashinfer_batch *batch);

/* Writes all bytes of the plan, for lengths that fit. False: more tiles than the key has; nothing was written. */
bool cgr__flashinfer_fill(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, void *int_workspace);

/* Reads an input and makes the key, with a message that begins with the function's name. What follows from lengths is not
 * known yet if `*open` is true. */
cgr_status cgr__flashinfer_read_decode_key(const char *function, const cgr_flashinfer_decode_input *input,
                                           cgr_flashinfer_decode_input *in, cgr__flashinfer_key *key, bool *open);
cgr_status cgr__flashinfer_read_prefill_key(const char *function, const cgr_flashinfer_prefill_input *input,
                                            cgr_flashinfer_prefill_input *in, cgr__flashinfer_key *key, bool *open);

/* cgr_flashinfer_prefill_build, whose messages begin with `function`. */
cgr_status cgr__flashinfer_build_prefill(const char *function, const cgr_flashinfer_prefill_input *input, void *int_workspace,
                                         size_t int_bytes, cgr_flashinfer_plan *plan);

/* Why a batch is not a cascade. */
enum cgr__cascade_fault_kind {
  CGR__CASCADE_BEGIN,       /* array[0] is not 0 */
  CGR__CASCADE_FALL,        /* array[index] is less than the entry before it, `expected` */
  CGR__CASCADE_END,         /* group_start does not end at the requests; `expected` of them are live */
  CGR__CASCADE_PREFIX,      /* prefix_pages[index] is negative */
  CGR__CASCADE_LAST_PAGE,   /* kv_last_page_len[index] is no part of a page */
  CGR__CASCADE_LONG_PREFIX, /* prefix_pages[index] is more than the `expected` tokens that `request` has before its new ones */
  CGR__CASCADE_PAGE         /* page `index` of `request` is not the group's, `expected` */
};
typedef struct cgr__cascade_fault {
  enum cgr__cascade_fault_kind kind;
  const char *array;
  int32_t index, got, request, group;
  int64_t expected;
} cgr__cascade_fault;

/* Two levels: reads the struct and checks all but what the arrays hold, with a message. */
cgr_status cgr__cascade_read(const char *function, const cgr_flashinfer_cascade *given, cgr_flashinfer_cascade *c);

/* None of these leaves a message. They tell how many requests are live; fill the arrays of both levels, or tell in `fault`, which
 * otherwise stays as it is, why there are none; and make the levels ones without requests. */
int32_t cgr__cascade_live(const cgr_flashinfer_cascade *c);
bool cgr__cascade_split(const cgr_flashinfer_cascade *c, cgr__cascade_fault *fault);
void cgr__cascade_clear(const cgr_flashinfer_cascade *c);

/* plan_info and the sizes of a complete key. */
cgr_flashinfer_plan cgr__flashinfer_describe(const cgr__flashinfer_key *key);

/* What every call asks of the workspaces. `int_workspace` is not looked at when int_bytes is 0. */
cgr_status cgr__flashinfer_check_float(const char *function, const cgr_flashinfer_plan *plan, uint64_t float_bytes);
cgr_status cgr__flashinfer_check_memory(const char *function, const cgr_flashinfer_plan *plan, const void *int_workspace,
                                        size_t int_bytes);

#ifdef __cplusplus
}
#endif
#endif
