/* The one table of persistent buffers. It determines the layout of the arena, the first fill, the view that kernels get
 * (cgr__buffers) and the comparison in the tests.
 *
 * X(id, field, type, shape, copies, source, padding)
 *
 * - id, field: enumerator and name; a public buffer has the same id in cgr_buffer.
 * - type: I32, I64, FP32.
 * - shape: SCALARS [16], TOKENS [T], REQUESTS [R], REQUESTS_1 [R+1], REQUEST_TOKENS [R][1+k], ROWS [M+1], ROW_TOKENS [M+1][1+k],
 *   PROGRAM_ROWS [programs * (M+1)],
 *   REQUEST_DRAFTS [R][k], ROW_DRAFTS [M+1][k], in a runtime that has guesses; ROW_PAGES [M+1][P], REQUEST_PAGES [R][P * n],
 * BATCH_PAGES [R * P * n]; PLAN, PLAN_COUNTERS, PARTIAL_OUT, PARTIAL_STATE as the plans ask; RING_SLOT, a ring slot without the
 * sections of declared buffers; STAMPS, a row of timestamps for each step of the ring and one more, in a runtime that is timed;
 * VALUES [R], in one that checks values.
 * - copies: ONE, GROUP (one per group), SET (one per length set).
 * - source: STAGED, copied from the ring slot by the prologue; PLANNED, computed on the device from what was staged; ON_DEMAND,
 * the same but by a kernel of its own, for those who ask (cgr__limits.on_demand): a buffer that was not asked for has no copies;
 *   WRITTEN, by the engine's or the library's kernels during the step; STATE, which lives across steps.
 * - padding: what every element holds at first; and for buffers of tokens and requests, what the entries after the real ones hold
 *   in every step. A number, or REPEAT: the last real value (first 0); TRASH: the group's read-trash page; KERNEL_TRASH: the
 *   first of its n; ROW: the padding row; NONE: they are never read, first 0. (For buffers of pages it determines only the first
 *   fill: kernels/on_demand.h says how far they are written.) */
#ifndef CGR_BUFFERS_TABLE_H
#define CGR_BUFFERS_TABLE_H

#include <stdint.h>

#include "base/limits.h"

enum {
  CGR__PADDING_REPEAT = -1000,
  CGR__PADDING_TRASH = -1001,
  CGR__PADDING_ROW = -1002,
  CGR__PADDING_NONE = -1003,
  CGR__PADDING_KERNEL_TRASH = -1004
};

enum cgr__shape {
  CGR__SHAPE_SCALARS,
  CGR__SHAPE_TOKENS,
  CGR__SHAPE_REQUESTS,
  CGR__SHAPE_REQUESTS_1,
  CGR__SHAPE_REQUEST_TOKENS,
  CGR__SHAPE_ROWS,
  CGR__SHAPE_PROGRAM_ROWS,
  CGR__SHAPE_ROW_TOKENS,
  CGR__SHAPE_REQUEST_DRAFTS,
  CGR__SHAPE_ROW_DRAFTS,
  CGR__SHAPE_ROW_PAGES,
  CGR__SHAPE_REQUEST_PAGES,
  CGR__SHAPE_BATCH_PAGES,
  CGR__SHAPE_PLAN,
  CGR__SHAPE_PLAN_COUNTERS,
  CGR__SHAPE_PARTIAL_OUT,
  CGR__SHAPE_PARTIAL_STATE,
  CGR__SHAPE_RING_SLOT,
  CGR__SHAPE_STAMPS,
  CGR__SHAPE_VALUES,
  CGR__SHAPE_COUNT
};

enum cgr__copies { CGR__COPIES_ONE, CGR__COPIES_GROUP, CGR__COPIES_SET };

enum cgr__source { CGR__SOURCE_STAGED, CGR__SOURCE_PLANNED, CGR__SOURCE_ON_DEMAND, CGR__SOURCE_WRITTEN, CGR__SOURCE_STATE };

/* clang-format off */
#define CGR__BUFFER_TABLE(X)                                                                                        \
  X(INPUT_IDS,                input_ids,                I32,  TOKENS,         ONE,   STAGED,  0)                    \
  X(POSITIONS,                positions,                I32,  TOKENS,         ONE,   PLANNED, 0)                    \
  X(SLOT_MAPPING,             slot_mapping,             I64,  TOKENS,         GROUP, PLANNED, -1)                   \
  X(QUERY_START_LOC,          query_start_loc,          I32,  REQUESTS_1,     ONE,   STAGED,  CGR__PADDING_REPEAT)  \
  X(SEQ_LENS,                 seq_lens,                 I32,  REQUESTS,       SET,   PLANNED, 0)                    \
  X(REQUEST_ROWS,             request_rows,             I32,  REQUESTS,       ONE,   STAGED,  CGR__PADDING_ROW)     \
  X(PAGE_TABLE,               page_table,               I32,  ROW_PAGES,      GROUP, STATE,   CGR__PADDING_TRASH)   \
  X(KV_INDPTR,                kv_indptr,                I32,  REQUESTS_1,     GROUP, PLANNED, CGR__PADDING_REPEAT)  \
  X(KV_LAST_PAGE_LEN,         kv_last_page_len,         I32,  REQUESTS,       GROUP, PLANNED, 1)                    \
  X(ROW_COMPUTED,             row_computed,             I32,  PROGRAM_ROWS,   ONE,   STATE,   0)                    \
  X(ROW_LAST_TOKENS,          row_last_tokens,          I32,  ROW_TOKENS,     ONE,   STATE,   0)                    \
  X(ROW_NUM_ACCEPTED,         row_num_accepted,         I32,  ROWS,           ONE,   STATE,   0)                    \
  X(LOGITS_INDICES,           logits_indices,           I32,  REQUESTS,       ONE,   PLANNED, 0)                    \
  X(NEXT_TOKENS,              next_tokens,              I32,  REQUEST_TOKENS, ONE,   WRITTEN, CGR__PADDING_NONE)    \
  X(COUNTS,                   counts,                   I32,  SCALARS,        ONE,   PLANNED, 0)                    \
  X(PLAN,                     plan,                     I32,  PLAN,           ONE,   PLANNED, CGR__PADDING_NONE)    \
  X(KV_INDICES,               kv_indices,               I32,  BATCH_PAGES,    GROUP, ON_DEMAND, CGR__PADDING_KERNEL_TRASH) \
  X(BLOCK_TABLE,              block_table,              I32,  REQUEST_PAGES,  GROUP, ON_DEMAND, CGR__PADDING_KERNEL_TRASH) \
  X(KV_START_LOC,             kv_start_loc,             I32,  REQUESTS_1,     SET,   ON_DEMAND, CGR__PADDING_REPEAT)  \
  X(CONTEXT_LENS,             context_lens,             I32,  REQUESTS,       ONE,   ON_DEMAND, 0)                    \
  X(CONTEXT_START_LOC,        context_start_loc,        I32,  REQUESTS_1,     ONE,   ON_DEMAND, CGR__PADDING_REPEAT)  \
  X(PREFILL_QUERY_START_LOC,  prefill_query_start_loc,  I32,  REQUESTS_1,     ONE,   ON_DEMAND, CGR__PADDING_REPEAT)  \
  X(PREFILL_KV_INDPTR,        prefill_kv_indptr,        I32,  REQUESTS_1,     GROUP, ON_DEMAND, CGR__PADDING_REPEAT)  \
  X(PREFILL_KV_LAST_PAGE_LEN, prefill_kv_last_page_len, I32,  REQUESTS,       GROUP, ON_DEMAND, 1)                    \
  X(PREFILL_SEQ_LENS,         prefill_seq_lens,         I32,  REQUESTS,       SET,   ON_DEMAND, 0)                    \
  X(PREFILL_KV_START_LOC,     prefill_kv_start_loc,     I32,  REQUESTS_1,     SET,   ON_DEMAND, CGR__PADDING_REPEAT)  \
  X(PREFILL_BLOCK_TABLE,      prefill_block_table,      I32,  REQUEST_PAGES,  GROUP, ON_DEMAND, CGR__PADDING_KERNEL_TRASH) \
  X(NUM_DRAFTS,               num_drafts,               I32,  REQUESTS,       ONE,   PLANNED, 0)                    \
  X(NUM_ACCEPTED,             num_accepted,             I32,  REQUESTS,       ONE,   WRITTEN, CGR__PADDING_NONE)    \
  X(DRAFT_TOKENS,             draft_tokens,             I32,  REQUEST_DRAFTS, ONE,   WRITTEN, CGR__PADDING_NONE)    \
  X(ROW_DRAFT_TOKENS,         row_draft_tokens,         I32,  ROW_DRAFTS,     ONE,   STATE,   0)                    \
  X(REQUEST_FLAGS,            request_flags,            I32,  REQUESTS,       ONE,   STAGED,  0)                    \
  X(STEP_STATE,               step_state,               I64,  SCALARS,        ONE,   STATE,   0)                    \
  X(BLOCK_EXTENTS,            block_extents,            I32,  REQUESTS,       GROUP, STATE,   0)                    \
  X(PREFILL_BLOCK_EXTENTS,    prefill_block_extents,    I32,  REQUESTS,       GROUP, STATE,   0)                    \
  X(PLAN_COUNTERS,            plan_counters,            I32,  PLAN_COUNTERS,  ONE,   STATE,   0)                    \
  X(PARTIAL_OUT,              partial_out,              FP32, PARTIAL_OUT,    ONE,   WRITTEN, CGR__PADDING_NONE)    \
  X(PARTIAL_STATE,            partial_state,            FP32, PARTIAL_STATE,  ONE,   WRITTEN, CGR__PADDING_NONE)    \
  X(INBOX,                    inbox,                    I32,  RING_SLOT,      ONE,   STATE,   0)                    \
  X(STAMPS,                   stamps,                   I64,  STAMPS,         ONE,   STATE,   0)                    \
  X(VALUE_FLAGS,              value_flags,              I64,  VALUES,         ONE,   STATE,   0)

enum cgr__buffer_id {
#define CGR__BUFFER_ENUM(id, field, type, shape, copies, source, padding) CGR__BUFFER_##id,
  CGR__BUFFER_TABLE(CGR__BUFFER_ENUM)
#undef CGR__BUFFER_ENUM
  CGR__BUFFER_COUNT
};

/* The bit of an on-demand buffer in cgr__limits.on_demand: that of CGR_ON_DEMAND. */
#define CGR__ON_DEMAND(id) ((uint64_t)1 << ((int)(id) - (int)CGR__BUFFER_KV_INDICES))
#define CGR__LAST_ON_DEMAND CGR__BUFFER_PREFILL_BLOCK_TABLE
#define CGR__ALL_ON_DEMAND (2 * CGR__ON_DEMAND(CGR__LAST_ON_DEMAND) - 1)
/* Those of the prefills alone: they need a reorder threshold. */
#define CGR__PREFILL_ON_DEMAND \
  (CGR__ALL_ON_DEMAND & ~(CGR__ON_DEMAND(CGR__BUFFER_PREFILL_QUERY_START_LOC) - 1))
/* Those of groups: without a group there are none. */
#define CGR__PAGE_ON_DEMAND                                                                            \
  (CGR__ON_DEMAND(CGR__BUFFER_KV_INDICES) | CGR__ON_DEMAND(CGR__BUFFER_BLOCK_TABLE) |                    \
   CGR__ON_DEMAND(CGR__BUFFER_PREFILL_KV_INDPTR) | CGR__ON_DEMAND(CGR__BUFFER_PREFILL_KV_LAST_PAGE_LEN) | \
   CGR__ON_DEMAND(CGR__BUFFER_PREFILL_BLOCK_TABLE))

#define CGR__TYPE_I32 int32_t
#define CGR__TYPE_I64 int64_t
#define CGR__TYPE_FP32 float

#define CGR__FIELD_ONE(type, field) type *field;
#define CGR__FIELD_SET(type, field) type *field[CGR__MAX_SETS];
#define CGR__FIELD_GROUP(type, field)
#define CGR__GROUP_FIELD_ONE(type, field)
#define CGR__GROUP_FIELD_SET(type, field)
#define CGR__GROUP_FIELD_GROUP(type, field) type *field;

/* The buffers of one group. */
typedef struct cgr__group_buffers {
#define CGR__BUFFER_FIELD(id, field, type, shape, copies, source, padding) CGR__GROUP_FIELD_##copies(CGR__TYPE_##type, field)
  CGR__BUFFER_TABLE(CGR__BUFFER_FIELD)
#undef CGR__BUFFER_FIELD
} cgr__group_buffers;

/* The addresses of all buffers, as kernels get them: a pointer of the same name for each, an array of pointers for the length
 * sets, and one struct per group. */
typedef struct cgr__buffers {
#define CGR__BUFFER_FIELD(id, field, type, shape, copies, source, padding) CGR__FIELD_##copies(CGR__TYPE_##type, field)
  CGR__BUFFER_TABLE(CGR__BUFFER_FIELD)
#undef CGR__BUFFER_FIELD
  cgr__group_buffers group[CGR__MAX_GROUPS];
} cgr__buffers;
/* clang-format on */

#endif
