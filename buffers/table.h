/* The one table of persistent buffers: name, dtype, shape, copies, source and padding value. Layout, first fill, staging and
 * documentation follow from it.
 *
 * X(id, name, dtype, shape, copies, source, padding)
 *   shape   TOKENS [T], REQUESTS [R], REQUESTS_1 [R+1], ROWS [M], ROW_PAGES [M][P], COUNTS [16], PLAN and PARTIALS: by planner
 *   copies  ONE, GROUP (one per group), SET (one per length set)
 *   source  STAGED: copied from the slot by the prologue; PLANNED: computed on the device from what was staged;
 *           WRITTEN: written by the engine's or the library's kernels during the step; STATE: lives across steps
 *   padding what the rows behind the real ones hold in every step: a number, or
 *           REPEAT: the last real value; TRASH: the group's read-trash page (the table's first fill)
 */
#ifndef CGR_BUFFERS_TABLE_H
#define CGR_BUFFERS_TABLE_H

#include "cgr/cgr.h"

#define CGR__PAD_REPEAT (-1000)
#define CGR__PAD_TRASH (-1001)

#define CGR__BUFFER_TABLE(X)                                                           \
  X(INPUT_IDS, "input_ids", I32, TOKENS, ONE, STAGED, 0)                               \
  X(POSITIONS, "positions", I32, TOKENS, ONE, PLANNED, 0)                              \
  X(SLOT_MAPPING, "slot_mapping", I64, TOKENS, GROUP, PLANNED, -1)                     \
  X(QUERY_START_LOC, "query_start_loc", I32, REQUESTS_1, ONE, STAGED, CGR__PAD_REPEAT) \
  X(SEQ_LENS, "seq_lens", I32, REQUESTS, SET, PLANNED, 0)                              \
  X(REQUEST_ROWS, "request_rows", I32, REQUESTS, ONE, STAGED, 0)                       \
  X(PAGE_TABLE, "page_table", I32, ROW_PAGES, GROUP, STATE, CGR__PAD_TRASH)            \
  X(KV_INDPTR, "kv_indptr", I32, REQUESTS_1, GROUP, PLANNED, CGR__PAD_REPEAT)          \
  X(KV_LAST_PAGE_LEN, "kv_last_page_len", I32, REQUESTS, GROUP, PLANNED, 1)            \
  X(ROW_COMPUTED, "row_computed", I32, ROWS, ONE, STATE, 0)                            \
  X(ROW_LAST_TOKENS, "row_last_tokens", I32, ROWS, ONE, STATE, 0)                      \
  X(ROW_NUM_ACCEPTED, "row_num_accepted", I32, ROWS, ONE, STATE, 0)                    \
  X(LOGITS_INDICES, "logits_indices", I32, REQUESTS, ONE, PLANNED, 0)                  \
  X(NEXT_TOKENS, "next_tokens", I32, REQUESTS, ONE, WRITTEN, 0)                        \
  X(COUNTS, "counts", I32, COUNTS, ONE, PLANNED, 0)                                    \
  X(PLAN, "plan", I32, PLAN, ONE, PLANNED, 0)                                          \
  X(REQUEST_FLAGS, "request_flags", I32, REQUESTS, ONE, STAGED, 0)                     \
  X(STEP_STATE, "step_state", I64, STEP_STATE, ONE, STATE, 0)                          \
  X(PLAN_COUNTERS, "plan_counters", I32, PLAN_COUNTERS, ONE, STATE, 0)                 \
  X(PARTIAL_OUT, "partial_out", FP32, PARTIAL_OUT, ONE, WRITTEN, 0)                    \
  X(PARTIAL_MAX_SUM, "partial_max_sum", FP32, PARTIAL_MAX_SUM, ONE, WRITTEN, 0)

/* The public enumerators of cgr_buffer come first and in the same order (checked in layout.c). */
/* clang-format off */
enum cgr__buffer_id {
#define CGR__BUFFER_ENUM(id, name, dtype, shape, copies, source, padding) CGR__BUFFER_##id,
  CGR__BUFFER_TABLE(CGR__BUFFER_ENUM)
#undef CGR__BUFFER_ENUM
  CGR__BUFFER_COUNT
};
/* clang-format on */

#endif
