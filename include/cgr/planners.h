/* cgr's own planners without a runtime: the attention plan and the metadata of a step, from host arrays. For engines with kernels
 * of their own, and for tests. Not included by cgr.h. interop/ has the plans of other libraries' kernels. */
#ifndef CGR_PLANNERS_H
#define CGR_PLANNERS_H

#include "cgr/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------ plan */

/* The native attention plan of a batch, for layers that are alike: part of the content of CGR_BUFFER_PLAN, which has one for each
 * kind of layer. It is made for the library's own kernels, and opaque: its layout is not part of the interface. It is here
 * to be compared, sized and measured; engines with kernels of their own want cgr_metadata_build, or
 * CGR_BUFFER_SLOT_MAPPING and similar buffers.
 *
 * Requests with at most decode_query_len new tokens are the decode section: one tile for each head block (the query heads of one
 * KV head, or some of them, that a kernel takes together), one after the other, cut into num_parts parts of equal cost; a
 * runtime's plan may use fewer parts if there is a prefill queue, and the remaining parts begin with the queue. The other
 * requests are the prefill queue: tiles of prefill_tile_q new tokens, taken one by one, the costliest first; if there are fewer
 * than num_parts (and max_splits is not set), they are cut into splits and taken in the order of the batch. KV is counted in
 * tiles of decode_tile_kv or prefill_tile_kv tokens. Costs are in any unit; those of all requests of the decode section, times
 * head_blocks, are at most 2^62. However the new tokens are spread over the requests, they make at most 2^31 - 1 tiles, all head
 * blocks counted. */
typedef struct cgr_plan_input {
  uint32_t size;
  int32_t num_requests;      /* 0 .. 2^24 */
  const int32_t *query_lens; /* [num_requests] new tokens, 0 or more; at most 2^31 - 65 in all */
  const int32_t *seq_lens;   /* [num_requests] tokens in the cache, the new ones included; at most 2^30 */
  int32_t num_parts;         /* CTAs that the plan is for, 1 .. 4096; the runtime takes what the device holds at once */
  int32_t head_blocks;       /* 1 .. 1024; 0: 1 */
  int32_t decode_query_len;  /* 1 .. 4096; 0: 1 */
  int32_t decode_tile_kv;    /* 1 .. 4096; 0: 64 */
  int32_t cost_tile;         /* of a tile of the decode section, besides its KV tiles, 0 .. 2^20; with cost_kv 0: 2 */
  int32_t cost_kv;           /* of a KV tile, 1 .. 2^20; 0: 1 */
  int32_t snap;              /* a part ends where a tile does if that is no further away than this, 0 .. 2^20; parts of equal
                                tiles may be lengthened by at most this, or twice this if no tile is then cut, and never by more
                                than 1/20 */
  int32_t prefill_tile_q;    /* 1 .. 4096; 0: 64 */
  int32_t prefill_tile_kv;   /* 1 .. 4096; 0: 64 */
  int32_t window_left;       /* keys that a query sees, its own included; 0: all */
  int32_t window_right;      /* keys after its own, with `bidirectional`; 0: all */
  int32_t bidirectional;     /* not 0: a query also sees keys after its own */
  int32_t max_splits;        /* 1 .. 256: batch-invariant: a tile of the decode section is split at its own borders, into at most
                                that many splits, and tiles of the prefill queue are whole; 0: tiles are split where parts end */
} cgr_plan_input;
#define CGR_PLAN_INPUT_INIT { (uint32_t)sizeof(cgr_plan_input), 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Bytes of the plan of a batch; they follow from the numbers of requests and of new tokens (query_lens), not from seq_lens.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_plan_size(const cgr_plan_input *input, size_t *plan_size);

/* `plan` is aligned to 16 bytes. Writes all the bytes that cgr_plan_size returned; unused bytes are 0. Allocates scratch.
 * Threads any · Capture ok · Sync never · Alloc cold */
CGR_API cgr_status cgr_plan_build(const cgr_plan_input *input, void *plan, size_t plan_size);

/* -------------------------------------------------------------------------------------------------------------- metadata */

/* One group of cgr_metadata. */
typedef struct cgr_metadata_group {
  int32_t page_size; /* tokens, at least 1 */
  int32_t read_trash_page, write_trash_page;
  int32_t kernel_page_size;  /* tokens per page of kv_indptr, kv_last_page_len and what is on demand: divides page_size; 0:
                                page_size */
  int64_t num_pages;         /* times page_size / kernel_page_size at most 2^31 - 1 */
  const int32_t *page_table; /* [max_rows + 1][page_table_stride]; row max_rows is not read */
  int64_t page_table_stride;
  int64_t *slot_mapping;     /* out, [padded_tokens]: page * page_size + offset; -1: write nothing */
  int32_t *kv_indptr;        /* out, [padded_requests + 1]: running sum of pages */
  int32_t *kv_last_page_len; /* out, [padded_requests]: tokens in the last page; 1 for empty requests */
} cgr_metadata_group;

/* What else some kernels want of one group: the on-demand buffers of the same names (cgr_buffer in record.h). Each may be NULL.
 * kv_indices has the pages of one request after the other, as many as kv_indptr ends with; the rest is not written. block_table
 * has the same pages in rows, then read_trash_page * n to a row's end. With n = page_size / kernel_page_size, page p of a request
 * is page_table[row][p / n] * n + p % n. Fields named prefill_* are from the first prefill on. */
typedef struct cgr_metadata_on_demand {
  int32_t *kv_indices;         /* out */
  int64_t max_kv_indices;      /* room for this many */
  int32_t *block_table;        /* out, [padded_requests][block_table_stride] */
  int64_t block_table_stride;  /* at least ceil(max_seq_len / kernel_page_size); of prefill_block_table, too */
  int32_t *prefill_kv_indptr;  /* out, [padded_requests + 1]: of kv_indptr; padding repeats the last value */
  int32_t *prefill_kv_last_page_len; /* out, [padded_requests]: of kv_last_page_len; padding 1 */
} cgr_metadata_on_demand;

/* The metadata of a step: what the persistent buffers of the same names hold after the prologue, padding included. The outputs
 * have room for the padded counts and are all required, down to logits_indices. */
typedef struct cgr_metadata {
  uint32_t size;
  int32_t num_requests;
  int32_t padded_requests, padded_tokens; /* at least the real counts */
  int32_t max_rows, max_seq_len, num_groups;
  int32_t reserved;
  const int32_t *rows;            /* [num_requests] */
  const int32_t *query_lens;      /* [num_requests] */
  const int32_t *tokens;          /* [sum of query_lens], ids or CGR_TOKEN_LAST; NULL: CGR_TOKEN_LAST for all */
  const int32_t *row_computed;    /* [max_rows] tokens in the cache before this step */
  const int32_t *row_last_tokens; /* [max_rows]; may be NULL when CGR_TOKEN_LAST is not used */
  const cgr_metadata_group *groups; /* [num_groups] */
  int32_t *input_ids;             /* out, [padded_tokens]; padding 0 */
  int32_t *positions;             /* out, [padded_tokens] position in the sequence; padding 0 */
  int32_t *query_start_loc;       /* out, [padded_requests + 1] running sum of query_lens; padding repeats the last value */
  int32_t *seq_lens;              /* out, [padded_requests] tokens in the cache, the new ones included; padding 0 */
  int32_t *request_rows;          /* out, [padded_requests]; padding max_rows */
  int32_t *logits_indices;        /* out, [padded_requests] a request's last token; 0 for padding and requests without tokens */
  /* The rest may be 0 and NULL: not wanted. */
  const cgr_metadata_on_demand *on_demand; /* [num_groups] */
  int32_t *kv_start_loc;          /* out, [padded_requests + 1] running sum of seq_lens */
  int32_t *context_lens;          /* out, [padded_requests] tokens in the cache before this step; padding 0 */
  int32_t *context_start_loc;     /* out, [padded_requests + 1] running sum of context_lens */
  int32_t *prefill_query_start_loc; /* out, [padded_requests + 1] query_start_loc from the first prefill on, less its first
                                       value; padding repeats the last one. All outputs of prefills need a reorder_threshold */
  int32_t *num_decodes;           /* out, [1] requests before the first prefill, as CGR_COUNT_DECODES */
  int32_t reorder_threshold;      /* most new tokens of a decode; batches then have their decodes first. 0: no request is one */
  int32_t uniform_split;          /* 0 or 1. 1: all decodes have as many new tokens as the first request, as with
                                     CGR_BACKEND_UNIFORM_SPLIT; needs a reorder_threshold of 1 or more */
  int32_t *prefill_seq_lens;      /* out, [padded_requests] seq_lens from the first prefill on; padding 0 */
  int32_t *prefill_kv_start_loc;  /* out, [padded_requests + 1] running sum of prefill_seq_lens */
  int32_t *const *prefill_block_table; /* [num_groups], each NULL or out, [padded_requests][on_demand[i].block_table_stride]: rows
                                          of the group's block table from the first prefill on; padding read_trash_page * n. Needs
                                          on_demand */
} cgr_metadata;
#define CGR_METADATA_INIT                                                                                                      \
  { (uint32_t)sizeof(cgr_metadata), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL }

/* CGR_ERROR_STEP: a guard refused a row, page or length, as it would on the device. The outputs are complete, that request has
 * length 0 (a page: its token has slot -1), and the message names the first case.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_metadata_build(const cgr_metadata *metadata);

#ifdef __cplusplus
}
#endif
#endif
