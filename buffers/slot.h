/* What travels between host and device in one step: a slot of the staging ring, and one of the readback ring.
 *
 * A staging slot is a header and three sections at fixed offsets. The header says which sections the device must read: an
 * unchanged decode batch is a header alone. The sections are plain i32 words:
 *     batch    request_rows [R], query_start_loc [R + 1], request_flags [R], packed for this step's num_requests
 *              (n, n + 1, n words)
 *     tokens   [num_tokens] token, or CGR_TOKEN_LAST
 *     changes  [num_changes] of cgr__change
 *
 * The host writes a slot only after the step that used it last has completed (buffers/ring.h), so its stores need no fence of
 * their own: the launch that follows orders them before the kernel that reads them. The device reads with relaxed system-scope
 * loads, never through the read-only cache. */
#ifndef CGR_BUFFERS_SLOT_H
#define CGR_BUFFERS_SLOT_H

#include <stdint.h>

enum {
  CGR__SLOT_BATCH = 1u, /* the batch section is present; without it the composition of step batch_seq still holds */
  CGR__SLOT_TOKENS = 2u /* the tokens section is present; without it every token is CGR_TOKEN_LAST */
};

typedef struct cgr__slot_header { /* 64 bytes */
  uint64_t seq;                   /* number of the step */
  uint64_t batch_seq;             /* the step whose batch section describes this one (seq itself with CGR__SLOT_BATCH) */
  int32_t num_requests;
  int32_t num_tokens;
  uint32_t flags; /* CGR__SLOT_* */
  int32_t num_changes;
  uint64_t generation; /* the one that the host last read: see cgr__completion */
  int32_t reserved[6];
} cgr__slot_header;

enum cgr__change_kind {
  CGR__CHANGE_PAGE = 1,      /* page_table[row][index] = value of group (kind >> 8) */
  CGR__CHANGE_COMPUTED = 2,  /* row_computed[row] = value, row_num_accepted[row] = 0 */
  CGR__CHANGE_LAST_TOKEN = 3 /* row_last_tokens[row] = value */
};

typedef struct cgr__change { /* one word of the persistent tables; no two changes of a slot name the same word */
  int32_t kind;              /* cgr__change_kind | group << 8 */
  int32_t row, index, value;
} cgr__change;

typedef struct cgr__slot_layout { /* offsets in bytes from the slot's start; each a multiple of 64 */
  int64_t batch, tokens, changes;
  int64_t stride; /* bytes of one slot */
} cgr__slot_layout;

/* A readback slot: this record, then tokens i32 [R]. */
typedef struct cgr__result_record { /* 64 bytes */
  uint64_t seq;
  int32_t num_requests;
  int32_t error; /* cgr_step_error, the first one of the step */
  int32_t error_row;
  int32_t error_index;
  int64_t error_value;
  int32_t reserved[8];
} cgr__result_record;

/* The head of the readback memory, mapped. Written by the device's epilogue alone. */
typedef struct cgr__completion { /* 128 bytes: two lines, so that polling one word does not share a line with the results */
  uint64_t completed_seq;        /* release at system scope, after the result of that step */
  uint64_t errors;               /* steps so far whose result carries an error; written before completed_seq */
  /* Steps so far that lost some of what they carried (refused as a whole, or a change dropped). The device refuses a header of
   * another generation than its own: what was prepared before the host knew of a loss may rest on what was lost. The host takes
   * the number over, and sends everything again with the first header that carries it. */
  uint64_t generation;
  uint64_t reserved[13];
} cgr__completion;

#endif
