/* The kernels of a step around the engine's own: prologue, planner and epilogue.
 *
 * All kernels of this folder take plain structs of addresses and of numbers that depend on the key alone; everything live is
 * read from the persistent buffers, and launch dimensions follow from the structs. Each kernel has a launcher for the host and,
 * in a CUDA build, one for CUDA. */
#ifndef CGR_KERNELS_STEP_H
#define CGR_KERNELS_STEP_H

#include <stdint.h>

#include "buffers/slot.h"
#include "devices/device.h"
#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_GROUPS 4
#define CGR__MAX_SETS 4

/* The error record of the step that is running, in device memory. The first guard that trips claims it by compare-and-swap of
 * `error` from 0 and then fills the rest; the epilogue reads it after every other kernel of the step.
 *     error               row   index                               value
 *     none                -1    0                                   0
 *     CGR_STEP_SEQUENCE   -1    0: seq, 1: batch_seq, 2: generation that number in the header
 *     CGR_STEP_COUNT      -1    0: num_requests, 1: num_tokens,     that number
 *                               2 + i: query_start_loc[i]
 *     CGR_STEP_CHANGE     -1    of the change; -1: num_changes      its kind; num_changes
 *     CGR_STEP_PAGE       row   in the row of the page table        the page (the table's; -1 where the row has no such index)
 *     CGR_STEP_ROW        -1    request                             the row
 *     CGR_STEP_LENGTH     row   request                             the length */
typedef struct cgr__step_error {
  int32_t error; /* cgr_step_error */
  int32_t row, index, reserved;
  int64_t value;
} cgr__step_error;

/* State of the protocol, in device memory. */
typedef struct cgr__step_state {
  uint64_t seq;        /* number of the last step that has completed; the one that runs is seq + 1 */
  uint64_t batch_seq;  /* step whose composition stands in request_rows, query_start_loc and request_flags; 0: none */
  uint64_t errors;     /* steps that reported an error */
  uint64_t generation; /* steps that lost content, as in cgr__completion */
  cgr__step_error error;
  int32_t lost; /* this step has lost content: the epilogue then counts generation up; reset with error */
  int32_t reserved[3];
} cgr__step_state;

/* Index of a word in CGR_BUFFER_COUNTS. */
enum {
  CGR__COUNT_REQUESTS = 0, /* real, this step; 0 when a guard emptied it */
  CGR__COUNT_TOKENS = 1,
  CGR__COUNT_PADDED_REQUESTS = 2,
  CGR__COUNT_PADDED_TOKENS = 3
};

typedef struct cgr__group_args {
  int32_t page_size;
  int32_t read_trash_page, write_trash_page;
  int32_t reserved;
  int64_t num_pages;
  int64_t page_table_stride; /* elements */
  int32_t *page_table;       /* [M][stride]; the engine's own when engine_table is set, then never written */
  int64_t *slot_mapping;     /* [T] */
  int32_t *kv_indptr;        /* [R+1] */
  int32_t *kv_last_page_len; /* [R] */
  int32_t engine_table;      /* 1: page_table belongs to the engine */
  int32_t reserved2;
} cgr__group_args;

/* Prologue, planner and epilogue share one struct. B_r = padded_requests and B_t = padded_tokens are the counts of the key. */
typedef struct cgr__step_args {
  const unsigned char *staging; /* mapped; slot i at staging + i * slot.stride */
  cgr__slot_layout slot;
  unsigned char *readback; /* mapped; result i at readback + i * readback_stride */
  int64_t readback_stride;
  cgr__completion *completion; /* mapped */
  cgr__step_state *state;      /* device */
  int32_t ring_depth;
  int32_t max_requests, max_rows, max_tokens; /* R, M, T */
  int32_t max_seq_len;
  int32_t max_changes;
  int32_t padded_requests, padded_tokens;
  int32_t num_groups;
  int32_t num_parts, tile_q;             /* of the plan */
  int32_t num_counters;                  /* words of plan_counters */
  int32_t abandon;                       /* epilogue: 1 when the host gave the step up half-way: no row state is committed */
  int32_t *input_ids, *positions;        /* [T] */
  int32_t *query_start_loc;              /* [R+1] */
  int32_t *seq_lens;                     /* [R] self */
  int32_t *request_rows, *request_flags; /* [R] */
  int32_t *logits_indices;               /* [R] */
  int32_t *row_computed, *row_last_tokens, *row_num_accepted; /* [M] */
  int32_t *next_tokens;                                       /* [R] */
  int32_t *counts;                                            /* [16] */
  int32_t *plan;                                              /* cgr__plan_header, cgr__plan_part [G] */
  int32_t *plan_counters;                                     /* [num_counters] arrivals, 0 between launches */
  cgr__group_args groups[CGR__MAX_GROUPS];
} cgr__step_args;

/* First kernel of a step. seq = state->seq + 1, slot = seq mod ring_depth.
 * 1. Reads the header and judges it: number, generation, counts, composition, in this order; the first that is wrong counts.
 *    seq differs: CGR_STEP_SEQUENCE. Counts above R, T, or padded_requests / padded_tokens, or negative:
 *    CGR_STEP_COUNT. No batch section and state->batch_seq is 0 or differs: CGR_STEP_SEQUENCE. Each of
 *    these sets state->lost. The header's generation is not state->generation: CGR_STEP_SEQUENCE (index 2) too, but nothing more
 * is lost by that. After any of these the step has no requests and no tokens, no change is applied, and state->batch_seq becomes
 * 0. num_changes outside 0 .. max_changes counts as CGR_STEP_CHANGE and none is applied.
 * 2. Applies the changes, each guarded (kind, group, row < M, index < page_table_stride, page in 0 .. num_pages - 1 and not the
 *    write-trash page): a bad page becomes the read-trash page (CGR_STEP_PAGE), any other bad change is dropped
 *    (CGR_STEP_CHANGE) and sets state->lost.
 * 3. Composition: from the batch section (then state->batch_seq = seq) or as it stands. query_start_loc must start at 0, not
 *    decrease and end at num_tokens, else CGR_STEP_COUNT as above. A row outside 0 .. M - 1: CGR_STEP_ROW, a length above
 *    max_seq_len (or a row_computed below 0): CGR_STEP_LENGTH: the request keeps its tokens in query_start_loc but gets seq_len
 *    0 and its tokens slot -1, position 0 and input id 0; it must not write or read any page (the planner and attention treat
 *    seq_len 0 as no work and attention writes 0 for its tokens). request_rows keeps what was sent, so that an unchanged step
 *    reports the row again. query_start_loc is checked before any change is applied.
 * 4. Writes all of request_rows, request_flags, seq_lens, logits_indices, kv_last_page_len [0, B_r) and query_start_loc,
 *    kv_indptr [0, B_r], input_ids, positions, slot_mapping [0, B_t) and the counts; rows and tokens behind the real ones get
 *    the padding values of buffers/table.h by the same code.
 *    seq_len = row_computed[row] + query_len; position of the j-th new token = row_computed[row] + j; slot = page * page_size +
 *    position % page_size with page = page_table[row][position / page_size], guarded as above (an engine's own table too), and
 *    the read-trash page, which nobody may write, is bad here as well: a bad page gives slot -1 and CGR_STEP_PAGE. A token
 *    that is CGR_TOKEN_LAST becomes row_last_tokens[row]. logits_indices = query_start_loc[i + 1] - 1, 0 when query_len is 0.
 *    kv_indptr: running sum of ceil(seq_len / page_size).
 * Row state is not changed; state->error is reset at the start. */
extern const cgr__kernel cgr__kernel_prologue; /* cgr__step_args */

/* Writes the plan (header and all G parts) of counts, query_start_loc and seq_lens, and zeroes plan_counters. A request with
 * seq_len 0 costs nothing. */
extern const cgr__kernel cgr__kernel_planner; /* cgr__step_args */

/* Last kernel of a step. Unless args.abandon, for each real request with seq_len > 0 and query_len > 0: row_computed[row] =
 * seq_len and, unless flags has CGR_REQUEST_PARTIAL, row_last_tokens[row] = next_tokens[i]. Writes result
 * slot seq mod ring_depth (record and next_tokens [num_requests of the header, or 0 for an emptied step]), then state->seq =
 * seq, counts state->generation up if state->lost, and publishes generation and errors in the completion record before
 * completion->completed_seq = seq, which is a release at system scope. */
extern const cgr__kernel cgr__kernel_epilogue; /* cgr__step_args */

#ifdef __cplusplus
}
#endif
#endif
