/* Recording a model: the persistent buffers that its kernels read and write, and the calls of `record`. The attention call itself
 * is in attention.h. */
#ifndef CGR_RECORD_H
#define CGR_RECORD_H

#include "cgr/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------------------- buffers */

/* The persistent buffers, device memory at fixed addresses. Every step writes all rows up to its padded counts; what they hold
 * past the real ones is given as "padding". R, M, T as in cgr_config, k = num_draft_tokens; P = ceil(tokens /
 * page_size), for the most tokens that a row has in the group's length set.
 * `index` of cgr_buffer_get is the group or the length set where there is one for each, of CGR_BUFFER_DECLARED the buffer, else
 * 0. */
typedef enum cgr_buffer {
  CGR_BUFFER_INPUT_IDS = 0,    /* i32 [T] token ids; padding 0 */
  CGR_BUFFER_POSITIONS,        /* i32 [T] position of the token in its length set; padding 0 */
  CGR_BUFFER_SLOT_MAPPING,     /* i64 [T] per group: page * page_size + offset of the token; padding, and tokens of another length
                                  set than the group's, -1 */
  CGR_BUFFER_QUERY_START_LOC,  /* i32 [R+1] first token of each request; padding repeats the last value */
  CGR_BUFFER_SEQ_LENS,         /* i32 [R] per length set: tokens that the row has, this step's included; padding 0 */
  CGR_BUFFER_REQUEST_ROWS,     /* i32 [R] row of each request; padding M, the padding row. A row that a guard refused
                                  keeps the value that was sent; check seq_lens, which is 0, first */
  CGR_BUFFER_PAGE_TABLE,       /* i32 [M+1][P] per group: page numbers; row M and entries that no request has set hold the
                                  read-trash page. Beyond a row's own pages, entries of the row's previous request may remain */
  CGR_BUFFER_KV_INDPTR,        /* i32 [R+1] per group: running sum of the requests' pages, those that a request has given back
                                  included; padding repeats the last value. From here on a page has kernel_page_size tokens
                                  (cgr_group), and n = page_size / kernel_page_size of them are one page of the page table */
  CGR_BUFFER_KV_LAST_PAGE_LEN, /* i32 [R] per group: tokens in the last page; padding and empty requests 1 */
  CGR_BUFFER_ROW_COMPUTED,     /* i32 [M+1] tokens in the program's cache before this step (cgr_where); row M is 0. Of a row that
                                  has ended (stops.h), with the sign bit set in program 0 */
  CGR_BUFFER_ROW_LAST_TOKENS,  /* i32 [M+1][1+k] what the row's last step sampled, the latest first: [0] is CGR_TOKEN_LAST; row M
                                  is 0, and what is past row_num_accepted undefined */
  CGR_BUFFER_ROW_NUM_ACCEPTED, /* i32 [M+1] guesses that the row's last step accepted; row M is 0 */
  CGR_BUFFER_LOGITS_INDICES,   /* i32 [R] the token whose hidden state predicts the next one; padding 0 */
  CGR_BUFFER_NEXT_TOKENS,      /* i32 [R][1+k] written by the engine's sampler, for the padded count; committed by the last
                                  kernel: [0] follows the last token that is no guess and, for each accepted guess, [j] guess
                                  j - 1. Without cgr_config.vocab_size a token that is out of the vocabulary comes back as the
                                  next step's input */
  CGR_BUFFER_COUNTS,           /* i32 [16] of this step, by cgr_count; the rest 0 */
  CGR_BUFFER_PLAN,             /* i32 words of the native attention plans */

  /* On demand, see below. */
  CGR_BUFFER_KV_INDICES,       /* i32 [R * P * n] per group: the pages of one request after the other, page p of request i at
                                  kv_indptr[i] + p: page_table[row][p / n] * n + p % n. An entry of a page that the request has
                                  given back is the read-trash page's. Written only up to kv_indptr[R]; after that are pages of
                                  earlier batches or the read-trash page's, always of the pool */
  CGR_BUFFER_BLOCK_TABLE,      /* i32 [R][P * n] per group: the same pages, a row for each request. After its own pages, and in
                                  padded requests, the read-trash page's first one, to the end of the row */
  CGR_BUFFER_KV_START_LOC,     /* i32 [R+1] per length set: running sum of seq_lens; padding repeats the last value */
  CGR_BUFFER_CONTEXT_LENS,     /* i32 [R] tokens before this step: seq_lens of its length set without the new ones; padding 0 */
  CGR_BUFFER_CONTEXT_START_LOC, /* i32 [R+1] running sum of context_lens; padding repeats the last value */
  CGR_BUFFER_PREFILL_QUERY_START_LOC,  /* i32 [R+1] first token of each request from CGR_COUNT_DECODES on, counted from the
                                          first of them: begins with 0; padding repeats the last value */
  CGR_BUFFER_PREFILL_KV_INDPTR,        /* i32 [R+1] per group: kv_indptr of the same requests, unchanged, so that it indexes
                                          kv_indices; padding repeats the last value */
  CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN, /* i32 [R] per group: kv_last_page_len of the same requests; padding 1 */
  CGR_BUFFER_PREFILL_SEQ_LENS,         /* i32 [R] per length set: seq_lens of the same requests; padding 0 */
  CGR_BUFFER_PREFILL_KV_START_LOC,     /* i32 [R+1] per length set: running sum of prefill_seq_lens, begins with 0; padding
                                          repeats the last value */
  CGR_BUFFER_PREFILL_BLOCK_TABLE,      /* i32 [R][P * n] per group: rows of block_table of the same requests; padding: the
                                          read-trash page's first one */

  /* Only with num_draft_tokens above 0; else cgr_buffer_get is CGR_ERROR_STATE. */
  CGR_BUFFER_NUM_DRAFTS,       /* i32 [R] guesses of each request, which are its last tokens: tokens logits_indices - num_drafts
                                  .. logits_indices predict next_tokens; padding, and requests that a guard emptied, 0 */
  CGR_BUFFER_NUM_ACCEPTED,     /* i32 [R] written by the engine's sampler: how many guesses it accepts, 0 .. num_drafts, from the
                                  first on; not read for requests without guesses */
  CGR_BUFFER_DRAFT_TOKENS,     /* i32 [R][k] written by the engine, if it guesses on the device: guesses of what follows the
                                  tokens that this step samples, for the row's next step (CGR_TOKEN_DRAFT); committed by the
                                  last kernel. The step that takes one checks it against cgr_config.vocab_size */
  CGR_BUFFER_ROW_DRAFT_TOKENS, /* i32 [M+1][k] what the row's last step left in draft_tokens; row M is 0 */
  CGR_BUFFER_COUNT_,
  CGR_BUFFER_DECLARED = 255     /* the engine's own, as declared: `index` is that in cgr_config.buffers */
} cgr_buffer;

/* On-demand buffers, from CGR_BUFFER_KV_INDICES on, take memory, and a kernel in every step, only in a runtime that was asked for
 * one of them: by cgr_config.on_demand, or by cgr_backend.on_demand of a backend that a layer names. In both, each has bit
 * buffer - CGR_BUFFER_KV_INDICES; the union of all counts. Those of prefills need a backend in use with a reorder_threshold.
 * cgr_buffer_get of one that was not asked for is CGR_ERROR_STATE.
 *
 * The kernel runs alongside the engine's first ones. Its buffers can be read by what is enqueued after the step's first
 * cgr_record_attention, after a cgr_record_buffer of one of them, or between pieces; without layers, from the start of `record`.
 *
 * A page in an engine's own table that may not be read is reported (CGR_GUARD_PAGE) and replaced by the read-trash page. Requests
 * that a guard refused have no pages, and lengths 0. */
#define CGR_ON_DEMAND(buffer) ((uint64_t)1 << ((int)(buffer) - (int)CGR_BUFFER_KV_INDICES))

/* The words of CGR_BUFFER_COUNTS. */
typedef enum cgr_count {
  CGR_COUNT_REQUESTS = 0, /* real; 0 when a guard emptied the step */
  CGR_COUNT_TOKENS = 1,   /* the same */
  CGR_COUNT_PADDED_REQUESTS = 2,
  CGR_COUNT_PADDED_TOKENS = 3,
  CGR_COUNT_DECODES = 4, /* if a backend in use has a reorder_threshold: requests before the first with more new tokens than
                            that, or all of them if none has more; those without new tokens count too. Otherwise 0.
                            With CGR_BACKEND_UNIFORM_SPLIT: 0 if request 0 has more than the threshold; all, if each has as many as
                            request 0 or none, or with a threshold of 1 if none has more than 1; else those before the first
                            whose number, 0 included, differs from that of request 0 */
  CGR_COUNT_DECODE_TOKENS = 5, /* new tokens of those */
  CGR_COUNT_APPEND_FIRST = 6 /* 1: a request may see tokens that others append in this step (cgr_request_set_length); else 0 */
} cgr_count;

typedef struct cgr_buffer_view {
  uint32_t size;
  int32_t dtype;    /* cgr_dtype */
  void *data;       /* device address, fixed for the runtime's life */
  int64_t shape[2]; /* shape[1] is 1 for a vector */
  int64_t stride;   /* elements from row to row */
} cgr_buffer_view;
#define CGR_BUFFER_VIEW_INIT { (uint32_t)sizeof(cgr_buffer_view), 0, NULL, { 0, 0 }, 0 }

/* The view of a persistent buffer. CGR_ERROR_INVALID_ENUM: no such buffer. CGR_ERROR_INVALID_ARGUMENT: an index that it does not
 * have, or another lane or program. CGR_ERROR_STATE: an on-demand buffer that was not asked for.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_buffer_get(cgr_runtime *runtime, const cgr_where *where, cgr_buffer buffer, int32_t index,
                                  cgr_buffer_view *view);

/* ----------------------------------------------------------------------------------------------------- recording a model */

/* The model, written once: enqueues one step on the recorder's stream, for its padded counts. The same function serves eager
 * steps and captures; a capture calls it exactly once per key that it captures, a replay never. Any status but CGR_OK gives up
 * the step or the capture, with CGR_ERROR_CALLBACK and the cause in the message; so does a failed cgr_record_ call, even if
 * `record` ignores it. It may call cgr_record_*, cgr_buffer_get and the functions of device.h that do not wait. */
typedef cgr_status (*cgr_record_function)(cgr_recorder *recorder, void *engine);

typedef struct cgr_record_info {
  uint32_t size;
  int32_t capturing;    /* 1 inside a capture */
  cudaStream_t stream;
  cgr_key key;
  int32_t num_tokens;   /* padded: what every kernel must be launched for */
  int32_t num_requests; /* padded */
  int32_t real_tokens;  /* of this step, for information only: never a launch count. -1 when capturing */
  int32_t real_requests;
  int32_t max_seq_len;  /* the longest of this step in its length set, at least 1, with guesses under way an upper bound; when
                           capturing, the set's bound */
  int32_t max_query_len; /* the most new tokens of a request, at least 1; when capturing, the most that the key serves */
  int32_t num_decodes;   /* as CGR_COUNT_DECODES; -1 when capturing, or if no backend in use has a reorder_threshold */
  int32_t num_decode_tokens; /* the same */
  const cgr_plan_key *plan_key; /* inside `plan` or `record` of a backend: what its state was made for; valid during that call; else
                                   NULL */
  void *plan_state;             /* its state */
} cgr_record_info;
#define CGR_RECORD_INFO_INIT \
  { (uint32_t)sizeof(cgr_record_info), 0, NULL, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_get_info(cgr_recorder *recorder, cgr_record_info *info);

/* A persistent buffer of the recorder's lane and program.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_buffer(cgr_recorder *recorder, cgr_buffer buffer, int32_t index, cgr_buffer_view *view);

/* Calls `function` at this point of the step: at once in FULL captures and eager steps. A PIECEWISE capture breaks here, and
 * every replay makes the call, with a recorder that tells that step's stream, key and real counts. `args` (at most 4096 bytes,
 * else CGR_ERROR_INVALID_ARGUMENT) is copied; the function gets the copy. It may do what `record` may, but cgr_record_attention
 * is refused in it, and cgr_record_call runs at once. Its status is returned here, or gives up the step (CGR_ERROR_CALLBACK of
 * cgr_step_launch). A stream that is forked and not joined at a break fails the capture.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a PIECEWISE capture) */
typedef cgr_status (*cgr_call_function)(cgr_recorder *recorder, const void *args);
CGR_API cgr_status cgr_record_call(cgr_recorder *recorder, cgr_call_function function, const void *args, size_t args_size);

/* Says, in a capture, that the graph holds an address in `region`, as given by cgr_region_register. A `record` that calls this
 * must name every region in which its kernels, or the arguments of its calls at breaks, hold an address; those in which the views
 * of its attention calls begin are known. One that never calls it holds all regions. In other steps only the number is checked.
 * Threads one · Capture ok · Sync never · Alloc cold in a capture, else never */
CGR_API cgr_status cgr_record_use(cgr_recorder *recorder, int32_t region);

/* --------------------------------------------------------------------------------------------------------------- measure */

/* What is measured: the largest magnitude in each channel of each head of a tensor of the step, V say. An engine makes factors from
 * it whose page and token strides are 0 (cgr_kv_view.scale): divided by 127 for i8, by 448 for fp8_e4m3. The step's real tokens
 * count; a NaN does not, an infinity does. */
typedef struct cgr_measure {
  uint32_t size;
  int32_t num_heads; /* 1 .. 1024 */
  int32_t head_dim;  /* a multiple of 8, 8 .. 1024 */
  uint32_t reserved;
  cgr_view view;     /* [num_tokens, num_heads, head_dim], of fp32, fp16 or bf16; covers the padded token count */
  float *maxima;     /* device, [num_heads][head_dim], aligned to 4 bytes: each becomes the larger of its old value and the step's
                        maximum; set them to 0 first. Must overlap neither the view nor factors of a layer's cache */
} cgr_measure;
#define CGR_MEASURE_INIT { (uint32_t)sizeof(cgr_measure), 0, 0, 0, { NULL, 0, 0, 0, 0 }, NULL }

/* Enqueues a measure on the recorder's stream, wherever cgr_record_merge may be called, and holds the regions of `view` and
 * `maxima` as that does. In a graph it measures at every replay. Measures on several branches of a step may share maxima. It costs
 * one kernel that reads the view once. Tokens of a self-test count, too: set maxima to 0 after it.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_record_measure(cgr_recorder *recorder, const cgr_measure *measure);

/* ---------------------------------------------------------------------------------------------------------------- values */

typedef enum cgr_value_flag {
  CGR_VALUES_MASKED = 1 /* -inf is a value like any other: logits of tokens that are not allowed */
} cgr_value_flag;

/* What is searched for NaN and infinities, after the work that wrote it: logits, the output of a layer. */
typedef struct cgr_value_check {
  uint32_t size;
  uint32_t flags;    /* CGR_VALUES_* */
  const void *data;  /* device, a row for each padded token or request; aligned to its dtype */
  int64_t width;     /* elements of a row, 1 .. 2^31 */
  int64_t stride;    /* elements from row to row, width .. 2^31; 0: width */
  int32_t dtype;     /* fp32, fp16 or bf16 */
  int32_t dimension; /* cgr_dimension: TOKENS, or REQUESTS (those that have new tokens) */
  int32_t bit;       /* 0 .. 15: the bit that it sets in cgr_step_result.values; several checks may share one */
  int32_t reserved;  /* 0 */
} cgr_value_check;
#define CGR_VALUE_CHECK_INIT { (uint32_t)sizeof(cgr_value_check), 0, NULL, 0, 0, 0, 0, 0, 0 }

/* Enqueues a search on the recorder's stream, wherever cgr_record_merge may be called, and holds the region of `data` as that
 * does. The step's result has the bit set for each request with NaN or an infinity in a row of its own; padded rows, and those of
 * requests that a guard refused, are not looked at. A graph whose capture leaves the call out searches nothing: the self-test
 * names it. Without cgr_config.check_values the call only checks its arguments. It costs one kernel that reads the rows once:
 * about 2 us, and 1.2 to 2 times what reading them takes (on an H100). All rows together are less than 2^45 bytes.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_record_check_values(cgr_recorder *recorder, const cgr_value_check *check);

#ifdef __cplusplus
}
#endif
#endif
