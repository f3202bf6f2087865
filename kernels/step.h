/* The kernels of a step around the engine's own: prologue, fetch and epilogue. (The planner has a header of its own.)
 *
 * All kernels of this folder take plain structs of addresses and of numbers that depend on the key alone; everything live is read
 * from the persistent buffers, and launch dimensions follow from the structs. Each kernel has a launcher for the host and, in a
 * CUDA build, one for CUDA. */
#ifndef CGR_KERNELS_STEP_H
#define CGR_KERNELS_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"
#include "buffers/ring_slot.h"
#include "buffers/table.h"
#include "cgr/cgr.h"
#include "devices/device.h"
#include "planners/metadata/decode_split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The index of step `seq` in a ring. Depths are usually powers of two, and a 64-bit division takes a GPU 100 cycles. */
CGR__HOST_DEVICE int64_t cgr__ring_slot_index(uint64_t seq, int32_t depth) {
  if ((depth & (depth - 1)) == 0)
    return (int64_t)(seq & (uint64_t)(depth - 1));
  return (int64_t)(seq % (uint64_t)depth);
}

/* The error record of the step that is running, in device memory. The first guard that trips claims it by compare-and-swap of
 * `error` from 0 and then fills the rest; the epilogue reads it after every other kernel of the step.
 *     error                row   index                               value
 *     none                 -1    0                                   0
 *     CGR_GUARD_SEQUENCE   -1    0: seq, 1: batch_seq, 2: generation that number in the header
 *     CGR_GUARD_COUNT      -1    0: num_requests, 1: num_tokens,     that number
 *                                2 + i: query_start_loc[i]
 *     CGR_GUARD_CHANGE     -1    of the change; -1: num_changes      its kind; num_changes
 *                                max_changes + i: of edit i          its place
 *                                -2: num_edits                       num_edits
 *     CGR_GUARD_PAGE       row   in the row of the page table        the page (the table's; -1 where the row has no such index)
 *     CGR_GUARD_ROW        -1    request                             the row
 *     CGR_GUARD_LENGTH     row   request                             the length
 *     CGR_GUARD_ACCEPTED   row   request                             num_accepted
 *     CGR_GUARD_TOKEN      row   request                             the token
 *     CGR_GUARD_RANK       rank  cgr_fingerprint_part                a bit for each rank that differs */
typedef struct cgr__step_error {
  int32_t error; /* cgr_guard_error */
  int32_t row, index, reserved;
  int64_t value;
} cgr__step_error;

/* Coordinates the blocks of a prologue; zero before and after. */
typedef struct cgr__step_gate {
  int32_t begun;    /* blocks that have asked for a share of the tokens */
  int32_t open;     /* the requests and the rest of this struct are written */
  int32_t finished; /* blocks that have written their tokens */
  int32_t num_requests, num_tokens;
  int32_t num_edits; /* 0: no edit names tokens */
  uint32_t flags;
  int32_t fetched; /* the inbox has the ring slot */
} cgr__step_gate;

/* State of the protocol (buffers/PROTOCOL.md): the content of the buffer step_state. */
typedef struct cgr__step_state {
  uint64_t seq;        /* number of the last step that has completed; the one that runs is seq + 1 */
  uint64_t batch_seq;  /* step whose batch layout is in request_rows, query_start_loc and request_flags; 0: none */
  uint64_t errors;     /* steps that reported an error */
  uint64_t generation; /* steps that lost content */
  cgr__step_error error;
  int32_t lost;          /* this step has lost content; reset with error */
  int32_t padding_token; /* input id of padded tokens: 0, except in a self-test, which varies it */
  uint64_t staged;       /* sections of this step's ring slot that hold data of declared buffers; 0 for a step that was refused */
  cgr__step_gate gate;
} cgr__step_state;

/* What is fixed about a group. */
typedef struct cgr__group_geometry {
  int32_t page_size;
  int32_t read_trash_page, write_trash_page;
  int32_t engine_table; /* 1: the page table belongs to the engine and is never written */
  int64_t num_pages;
  int64_t page_table_stride; /* elements */
  int32_t length_set;        /* whose tokens its pages hold */
  int32_t kernel_page_size;  /* of the pages that backends read: a power of two below page_size; 0: page_size */
} cgr__group_geometry;

/* A declared buffer whose rows travel as changes. */
typedef struct cgr__row_buffer {
  int32_t *data; /* [max_rows + 1][words] */
  int64_t words; /* of a row; 0: no such buffer */
} cgr__row_buffer;

/* Prologue, fetch and epilogue share one struct. It has the numbers of cgr__limits by value: a launch and a graph copy it as the
 * parameter of a kernel, and a GPU does not see the limits that the host points to. */
typedef struct cgr__step_args {
  const unsigned char *staging; /* mapped; slot i at staging + i * slot.stride */
  unsigned char *readback;      /* mapped; result i at readback + i * readback_slot.stride */
  cgr__completion *completion;  /* mapped */
  cgr__ring_slot_layout slot;
  cgr__readback_layout readback_slot;
  cgr__step_state *state; /* buffers.step_state */
  int32_t ring_depth;
  int32_t max_requests, max_rows, max_tokens; /* R, M, T */
  int32_t max_lens[CGR__MAX_SETS];            /* tokens of a row in each length set */
  int32_t max_changes, token_stride;          /* token_stride: 1 + k */
  int32_t padded_requests, padded_tokens;     /* B_r, B_t: of the key */
  int32_t num_groups;
  int32_t empty;           /* prologue: 1 for a step that only uses up its number: the content of the ring slot is ignored */
  int32_t abandon;         /* epilogue: 1 when the host gave up the step: no row state is committed, the result has no requests */
  cgr__decode_split split; /* into decodes and prefills */
  int32_t num_sets;        /* length sets; 0 means 1 */
  int32_t set;             /* of the key: the length set whose tokens the step has */
  int32_t stamp_stride;    /* words of a step's row of buffers.stamps, which is NULL in a runtime that is not timed */
  int32_t max_query_len;   /* of a request: what the step's kernels were launched for; 0: any number */
  int32_t vocab_size;      /* sampled tokens and the row's own guesses are below it; 0: any */
  int32_t program; /* of the key; buffers.row_computed is that of the program, and those of the others are M + 1 words apart */
  int32_t num_programs;  /* 0: 1 */
  uint32_t other_groups; /* a bit for each group of another program: the step leaves their buffers alone, but for page tables */
  int32_t reserved;
  cgr__group_geometry group[CGR__MAX_GROUPS];
  cgr__buffers buffers;                    /* page tables: the engine's own where it has one */
  cgr__row_buffer rows[CGR__MAX_DECLARED]; /* by declared buffer */
  const int32_t *lengths; /* [max_rows + 1][num_sets - 1] of the rows in the sets after 0: one of those buffers */
  const int32_t *stops;   /* [max_rows + 1][stop_words] of the rows: another one; NULL: they have none */
  int64_t stop_words;
} cgr__step_args;

/* First kernel of a step. Code and tests cite its rules by their names. seq = state->seq + 1, slot = seq mod ring_depth.
 *
 * What is read
 *   P1 inbox        The inbox is read in place of the ring slot when it bears the number seq.
 *   P2 empty        With `empty` the step has no requests, tokens or changes. Neither ring slot nor inbox is read, and
 *                   state->batch_seq becomes 0. P4 to P17 are about other steps.
 *   P3 reset        state->error is reset at the start. state->staged becomes the header's, 0 for a refused step.
 *
 * What is checked: number, generation, counts, edits, batch layout, in this order; only the first error counts
 *   P4 refused      A refused step has no requests and no tokens, none of its changes is applied, and state->batch_seq becomes
 *                   0.
 *   P5 number       Another number than seq in the header: refused, CGR_GUARD_SEQUENCE, state->lost.
 *   P6 generation   A generation that is not state->generation: refused, CGR_GUARD_SEQUENCE (index 2). Nothing more is lost.
 *   P7 counts       Counts below 0, or above R, T, or B_r, B_t: refused, CGR_GUARD_COUNT, state->lost.
 *   P8 standing     No batch section while state->batch_seq is 0 or differs from the header's: refused, CGR_GUARD_SEQUENCE,
 *                   state->lost.
 *   P9 edits        num_edits outside 0 .. R, or an edit with a place outside 0 .. num_requests - 1, a query_len below 0, a
 *                   first_token below -1, or first_token >= 0 and first_token + query_len above T: refused, CGR_GUARD_CHANGE,
 *                   state->lost.
 *   P10 starts      query_start_loc that does not start at 0, grow by 0 .. max_query_len from each to the next, and end at
 *                   num_tokens: refused, CGR_GUARD_COUNT, state->lost. This is checked before any change is applied.
 *
 * Changes
 *   P11 number      num_changes outside 0 .. max_changes: none is applied, CGR_GUARD_CHANGE, state->lost.
 *   P12 page        A page outside 0 .. num_pages - 1, or the write-trash page, becomes the read-trash page (CGR_GUARD_PAGE).
 *   P13 other       A bad kind, group or buffer, a row not below M, or an index not below page_table_stride or the words of a
 *                   row: the change is dropped (CGR_GUARD_CHANGE), state->lost.
 *
 * Batch layout
 *   P14 source      It comes from the batch section, or stays as it is; then the edits are made, in either case. (In a ring slot
 *                   that the host has filled, edits next to the section only repeat it.) An edit gives its place row, flags
 *                   and query_len. query_lens are the differences of query_start_loc, whatever it holds, and are summed anew,
 *                   modulo 2^32. With the section or with edits state->batch_seq = seq.
 *   P15 row         A row outside 0 .. M - 1 is CGR_GUARD_ROW. request_rows keeps what was sent, so that an unchanged step
 *                   reports the row again.
 *   P16 length      A length above max_lens[0], or a row_computed below 0, is CGR_GUARD_LENGTH. So is a length in another set
 *                   that is below 0, above its max_lens or, in the step's own `set`, below the query_len.
 *   P17 emptied     The request of P15 or P16 keeps its tokens in query_start_loc but gets seq_len 0 in all sets, and its
 *                   tokens slot -1, position 0 and input id 0. Planner and attention treat seq_len 0 as no work; attention
 *                   writes 0 for its tokens. So is, without an error, the request of a row that has ended (cgr__row_has_ended).
 *
 * What is written
 *   P18 all         All of request_rows, request_flags, seq_lens, logits_indices, kv_last_page_len [0, B_r), query_start_loc,
 *                   kv_indptr [0, B_r], input_ids, positions, slot_mapping [0, B_t) and the counts. Row state is not changed.
 *   P19 padding     Entries after the real ones get the padding values of buffers/table.h by the same code (input_ids:
 *                   state->padding_token).
 *   P20 counts      With a threshold in `split` the counts of decodes are those of planners/metadata/decode_split.h, of the real
 *                   requests; else 0. CGR_COUNT_APPEND_FIRST is 1 with CGR__RING_SLOT_APPEND_FIRST, unless the step is refused.
 *   P21 lengths     seq_len = row_computed[row] + query_len. kv_indptr is the running sum of ceil(seq_len / kernel_page_size).
 *                   logits_indices = query_start_loc[i + 1] - 1, 0 when query_len is 0.
 *   P22 slot        The j-th new token has position row_computed[row] + j, and slot = page * page_size + position % page_size
 *                   with page = page_table[row][position / page_size]. A page that P12 refuses, in an engine's own table too,
 *                   and the read-trash page, which may not be written, give slot -1 and CGR_GUARD_PAGE.
 *   P23 token       Token j of a request is tokens[first_token + j] with an edit of it whose first_token is not -1; else
 *                   tokens[query_start_loc[i] + j] with CGR__RING_SLOT_TOKENS, and CGR_TOKEN_LAST without. A token that is
 *                   CGR_TOKEN_LAST becomes row_last_tokens[row][0].
 *   P24 sets        With num_sets above 1 seq_lens[s] of a set after 0 are lengths[row], and kv_indptr and kv_last_page_len of a
 *                   group are those of its set. In a step of such a set (`set`) seq_lens[0] = row_computed[row], the j-th new
 *                   token has position seq_lens[set] - query_len + j, and slot_mapping is -1 in the groups of other sets.
 *   P25 guesses     With token_stride above 1 num_drafts[i] = cgr__step_guesses of the request, 0 of an emptied one. A token is
 *                   then cgr__guess_index of what P23 has for it: where that is not -1, row_draft_tokens[row] has the token at
 *                   that index, or it is 0 where k is not above the index. With vocab_size, one outside 0 .. vocab_size - 1 is
 *                   CGR_GUARD_TOKEN, and 0.
 *   P26 drafts      In a step of a program after the first, a request with cgr__step_guesses above 0 follows the first program:
 *                   it lacks c = the first program's row_computed[row] + 1 - row_computed[row] tokens. c outside 1 ..
 *                   query_len, or above 1 + row_num_accepted[row], is CGR_GUARD_LENGTH, and P17. Its token j is
 *                   row_last_tokens[row][c - 1 - j], from c on row_last_tokens[row][0], and logits_indices =
 *                   query_start_loc[i] + c - 1. num_drafts is 0, and P25 is of the first program alone. */
extern const cgr__kernel cgr__kernel_prologue; /* cgr__step_args */

/* The guesses of a request, which are the last of its tokens; none if its flags cannot be. */
CGR__HOST_DEVICE int32_t cgr__step_guesses(int32_t flags, int32_t query_len, int32_t token_stride) {
  int32_t guesses = (int32_t)((uint32_t)flags / CGR_REQUEST_DRAFTS(1) & 0xffu);
  return guesses < token_stride && guesses < query_len && !((uint32_t)flags & CGR_REQUEST_PARTIAL) ? guesses : 0;
}

/* Whether this row_computed is that of a row that has ended. Only where rows have stops. */
CGR__HOST_DEVICE bool cgr__row_has_ended(int32_t computed, int32_t max_len) {
  return computed < 0 && (computed & INT32_MAX) <= max_len;
}

/* Whether a sampled token ends a row that has so many tokens with it. */
CGR__HOST_DEVICE cgr_end cgr__end_at(const int32_t *stops, int32_t token, int64_t length) {
  const int32_t count = length >= stops[CGR__STOPS_MIN_LENGTH] ? stops[CGR__STOPS_COUNT] : 0;
  for (int32_t i = 0; i < count; i++)
    if (stops[CGR__STOPS_TOKENS + i] == token)
      return CGR_END_STOP_TOKEN;
  return stops[CGR__STOPS_MAX_LENGTH] > 0 && length >= stops[CGR__STOPS_MAX_LENGTH] ? CGR_END_LENGTH : CGR_END_NONE;
}

/* Where a row ends that had `length` tokens before it sampled next[0 .. accepted]: `accepted` becomes how many of its guesses
 * still count. */
CGR__HOST_DEVICE cgr_end cgr__find_end(const int32_t *stops, const int32_t *next, int32_t length, int32_t *accepted) {
  for (int32_t j = 0; j <= *accepted; j++) {
    const cgr_end end = cgr__end_at(stops, next[j], (int64_t)length + j + 1);
    if (end != CGR_END_NONE) {
      *accepted = j;
      return end;
    }
  }
  return CGR_END_NONE;
}

/* Which guess of the row's a token stands for, the j-th of its request: CGR_TOKEN_DRAFT, or CGR_TOKEN_LAST after the first. -1:
 * it is an id, or the row's last token. */
CGR__HOST_DEVICE int32_t cgr__guess_index(int32_t token, int32_t j) {
  if (token >= 0 || (token == CGR_TOKEN_LAST && j == 0))
    return -1;
  return token == CGR_TOKEN_LAST ? j - 1 : CGR_TOKEN_LAST - 1 - token;
}

/* `vocab_size` 0: any token is. */
CGR__HOST_DEVICE bool cgr__is_in_vocabulary(int32_t token, int32_t vocab_size) {
  return vocab_size == 0 || (token >= 0 && token < vocab_size);
}

/* The words of the rows' lengths in a program. */
CGR__HOST_DEVICE int32_t *cgr__step_computed(const cgr__step_args *a, int32_t program) {
  return a->buffers.row_computed + (int64_t)(program - a->program) * (a->max_rows + 1);
}

/* P26. Whether a request that lacks `count` tokens can follow the first program. */
CGR__HOST_DEVICE bool cgr__can_follow(int64_t count, int32_t query_len, int32_t num_accepted) {
  return count >= 1 && count <= query_len && count <= (int64_t)num_accepted + 1;
}

/* Whether a header names no more than a ring slot holds. */
CGR__HOST_DEVICE bool cgr__ring_slot_fits(const cgr__step_args *a, const cgr__ring_slot_header *header) {
  return header->num_requests >= 0 && header->num_requests <= a->max_requests && header->num_tokens >= 0 &&
         header->num_tokens <= a->max_tokens && header->num_changes >= 0 && header->num_changes <= a->max_changes &&
         header->num_edits >= 0 && header->num_edits <= a->max_requests && header->num_ids >= 0 &&
         header->num_ids <= a->max_tokens;
}

/* Words of the tokens section that a header names. */
CGR__HOST_DEVICE int32_t cgr__ring_slot_tokens(const cgr__ring_slot_header *header) {
  int32_t all = header->flags & CGR__RING_SLOT_TOKENS ? header->num_tokens : 0;
  return header->flags & CGR__RING_SLOT_EDITS && header->num_ids > all ? header->num_ids : all;
}

/* Reads the ring slot of the next step, state->seq + 2, while this one runs, so that its prologue need not wait for the bus. If
 * the ring slot already bears that number (acquire), its header and the sections that the header names are copied to the inbox,
 * which is laid out like a ring slot; the number is copied last. Sections of declared buffers stay where they are. If the ring
 * slot does not bear the number, or names more than a ring slot holds, the inbox keeps its older number. */
extern const cgr__kernel cgr__kernel_fetch; /* cgr__step_args */

/* Last kernel of a step. Real requests with seq_len > 0 and query_len > 0 are those that ran. Of each, row_computed[row] becomes
 * seq_len and, unless it has CGR_REQUEST_PARTIAL, row_last_tokens[row][0] becomes next_tokens[i][0]. None of this happens with
 * `abandon` or in a step of a length set after 0, where no request counts as one that ran.
 *   With token_stride above 1, a request that ran and is not partial accepts a = num_accepted[i] of its g = cgr__step_guesses; a
 * is 0 where g is 0, and where num_accepted[i] is outside 0 .. g, which is CGR_GUARD_ACCEPTED. Then row_computed[row] = seq_len -
 * g + a, row_num_accepted[row] = a, row_last_tokens[row][j] = next_tokens[i][a - j] for j <= a, and row_draft_tokens[row] =
 * draft_tokens[i]. With vocab_size, a sampled token outside 0 .. vocab_size - 1 is CGR_GUARD_TOKEN, and 0 in the row's state.
 *   With stops, cgr__find_end of what it samples, where it has seq_len - g tokens before, may lower a. If it tells of an end,
 * row_computed[row] also gets CGR__ROW_ENDED.
 *   Writes result slot seq mod ring_depth: the record (with generation where token_stride is above 1 or with stops), with stops
 * ended [n] (cgr_end; CGR_END_BEFORE of a request with seq_len 0 whose row has ended) and, of those that end, lengths [n]
 * (seq_len - g + a), num_tokens [n] (1 + a for
 * a request that ran and is not partial, else 0), next_tokens [n][1+k] and, in a runtime that checks values, the bits that
 *   In a step of a program after the first, a request that ran has c = logits_indices[i] + 1 - query_start_loc[i] tokens in place
 * of query_len: row_computed[row] = seq_len - query_len + c. Unless it is partial, row_draft_tokens[row][0] becomes
 * next_tokens[i][0], checked as above, and [j] draft_tokens[i][j] for j from 1 on; num_tokens is 1. Nothing else of the row
 * changes. Writes result slot seq mod ring_depth: the record (with generation where token_stride is above 1), num_tokens [n] (1 +
 * a for a request that ran and is not partial, else 0), next_tokens [n][1+k] and, in a runtime that checks values, the bits that
 * value_flags [n] has of this step, where n is the real count of the step, 0 with `abandon`. Then state->seq = seq,
 * state->generation counts state->lost, and generation and errors are written to the completion record before completed_seq =
 * seq, which is a release at system scope. In a timed runtime it takes the timestamps of its own end and the step's just before
 * that: a later kernel would still be writing when the host has seen the step complete. */
extern const cgr__kernel cgr__kernel_epilogue; /* cgr__step_args */

#ifdef __cplusplus
}
#endif
#endif
