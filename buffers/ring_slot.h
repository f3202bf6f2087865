/* What travels between host and device in one step: a ring slot, and one of the readback ring. Who writes what,
 * when, and what happens to a step that is lost: PROTOCOL.md.
 *
 * A ring slot is a header and four sections at fixed offsets. The header says which sections the device must read: an
 * unchanged decode batch is a header alone. The sections are plain i32 words:
 *     batch    request_rows [n], query_start_loc [n + 1], request_flags [n], packed for this step's n requests; the flags have
 * the number of guesses, as CGR_REQUEST_DRAFTS puts it there tokens   [num_tokens] ids, or CGR_TOKEN_LAST changes  [num_changes]
 * of cgr__change edits    [num_edits] of cgr__edit and after them one section for each buffer of the engine that is staged by
 * tokens or by requests. */
#ifndef CGR_BUFFERS_RING_SLOT_H
#define CGR_BUFFERS_RING_SLOT_H

#include <stdint.h>

enum cgr__ring_slot_flag {
  CGR__RING_SLOT_BATCH = 1,       /* the batch section is present; without it the batch layout of step batch_seq still holds */
  CGR__RING_SLOT_TOKENS = 2,      /* the tokens section has every token; without it each is CGR_TOKEN_LAST that no edit names */
  CGR__RING_SLOT_EDITS = 4,       /* the edits section is present, and in the tokens section the ids that it names */
  CGR__RING_SLOT_APPEND_FIRST = 8 /* becomes CGR_COUNT_APPEND_FIRST */
};

typedef struct cgr__ring_slot_header { /* 64 bytes */
  uint64_t seq;                        /* number of the step, stored when it is committed */
  uint64_t batch_seq;  /* the step whose batch layout this is, or is edited from (not read with CGR__RING_SLOT_BATCH) */
  uint64_t generation; /* losses that the host has seen */
  int32_t num_requests;
  int32_t num_tokens;
  int32_t num_changes;
  uint32_t flags;  /* CGR__RING_SLOT_* */
  uint64_t staged; /* bit i: the section of declared buffer i is present */
  int32_t num_edits;
  int32_t num_ids; /* with CGR__RING_SLOT_EDITS: words of the tokens section, num_tokens of them with CGR__RING_SLOT_TOKENS too */
  int32_t reserved[2];
} cgr__ring_slot_header;

enum cgr__change_kind {
  CGR__CHANGE_PAGE = 1,     /* page_table[row][index] = value, of group (kind >> 8) */
  CGR__CHANGE_COMPUTED = 2, /* row_computed[row] = value of program (kind >> 8); of the first, row_num_accepted[row] = 0, too, and
                               the value may have CGR__ROW_ENDED: the row has ended */
  CGR__CHANGE_DATA = 3      /* word `index` of the row in declared buffer (kind >> 8) = value */
};

typedef struct cgr__change { /* one word of the persistent tables; no two changes of a ring slot name the same word */
  int32_t kind;              /* cgr__change_kind | group or declared buffer << 8 */
  int32_t row, index, value;
} cgr__change;

/* row_computed of a row that has ended: its tokens, and this bit. Only in a runtime whose rows have stops. */
#define CGR__ROW_ENDED INT32_MIN

/* Words of a row's stops, which are data of the rows in a buffer that only the library declares. Lengths count the tokens in the
 * cache and the last sampled one. */
enum {
  CGR__STOPS_MAX_LENGTH = 0, /* 0: none */
  CGR__STOPS_MIN_LENGTH = 1, /* with fewer, no stop token counts */
  CGR__STOPS_COUNT = 2,      /* stop tokens */
  CGR__STOPS_TOKENS = 3      /* the first of them */
};

/* A request of the members: of the standing batch, or of a batch that was given whole. Without CGR__RING_SLOT_BATCH the batch
 * layout of step batch_seq is edited: every place from its number of requests to num_requests is named. With it the batch section
 * already is the batch layout, and edits only say which requests have tokens. */
typedef struct cgr__edit { /* no two edits of a ring slot name the same place */
  int32_t place;           /* index | CGR_REQUEST_* << 16 */
  int32_t row, query_len;
  int32_t first_token; /* index in the tokens section of the first of its query_len ids; -1: each token is CGR_TOKEN_LAST */
} cgr__edit;

typedef struct cgr__ring_slot_layout { /* offsets in bytes from the ring slot's start; each a multiple of 64 */
  int64_t batch, tokens, changes, edits;
  int64_t stride; /* bytes of one ring slot */
} cgr__ring_slot_layout;

/* A readback slot: this record, then num_tokens i32 [R], in a runtime whose rows have stops ended i32 [R] (cgr_end) and lengths
 * i32 [R], those of the rows that end in the step, then tokens i32 [R][1+k] and, in one that checks values, their flags u32 [R].
 */
typedef struct cgr__result_record { /* 64 bytes */
  uint64_t seq;
  int32_t num_requests;
  int32_t error; /* cgr_guard_error, the first one of the step */
  int32_t error_row;
  int32_t error_index;
  int64_t error_value;
  uint64_t generation; /* steps up to this one that lost content, in a runtime that has guesses or stops */
  int32_t ended;       /* 1: a row ends in this step */
  int32_t reserved[5];
} cgr__result_record;

typedef struct cgr__readback_layout { /* offsets in bytes from the ring slot's start; each a multiple of 64 */
  int64_t num_tokens, tokens, values;
  int64_t stride;
} cgr__readback_layout;

/* Where ended and lengths are in a runtime whose rows have stops: they are as long as num_tokens, and between that and tokens. */
static inline int64_t cgr__readback_ended(const cgr__readback_layout *slot) {
  return slot->num_tokens + (slot->tokens - slot->num_tokens) / 3;
}
static inline int64_t cgr__readback_lengths(const cgr__readback_layout *slot) {
  return slot->num_tokens + (slot->tokens - slot->num_tokens) / 3 * 2;
}

/* The beginning of the rings' memory, mapped; written only by the epilogue. The first cache line is what a waiting host polls. */
typedef struct cgr__completion { /* 128 bytes, two cache lines */
  uint64_t completed_seq;        /* release at system scope, after the result of that step */
  uint64_t errors;               /* steps so far whose result carries an error */
  uint64_t generation;           /* steps so far that lost content */
  uint64_t reserved[13];
} cgr__completion;

#endif
