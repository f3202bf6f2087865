/* Request rows: the host's mirror of the persistent tables, and which of its words the device does not have yet.
 *
 * The mirror is exact: `computed` counts the tokens that are in the cache once every step launched so far has run. A steady
 * decode batch does not touch it step by step; the steps are counted and settled when somebody looks (cgr__rows_settle).
 *
 * Changes stay dirty until the step that carries them has been launched: collect copies them out, commit (after a successful
 * launch) marks clean whatever has not been changed again in between. Sending a word twice is harmless. */
#ifndef CGR_PLANNERS_REQUESTS_ROWS_H
#define CGR_PLANNERS_REQUESTS_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "buffers/slot.h"
#include "cgr/cgr.h"

typedef struct cgr__row {
  int32_t computed;               /* tokens in the cache */
  int32_t num_pages;              /* pages set, without holes */
  int32_t page_capacity;          /* tokens that the pages hold: num_pages * page_size, or max_seq_len with an engine's table */
  uint32_t generation;            /* of the changes below */
  uint32_t collected;             /* generation that was collected last */
  int32_t dirty_first, dirty_end; /* pages that the device does not have */
  uint8_t open, has_token, dirty_computed, listed;
  uint64_t mark;     /* ticket of the last validation that saw the row */
  uint64_t last_seq; /* last step that used it */
} cgr__row;

/* The batch that repeats: the same rows with the same query lengths as the step before. */
typedef struct cgr__steady {
  int32_t num_requests; /* -1: there is none */
  int32_t query_len;    /* uniform, or 0: mixed */
  int32_t headroom;     /* further steps that surely fit every row's pages and max_seq_len */
  int32_t pending;      /* steps launched and not yet added to the rows */
  int has_tokens;       /* every row's last token is on the device */
  uint64_t last_seq;    /* of the pending steps */
} cgr__steady;

typedef struct cgr__rows {
  int32_t max_rows, max_seq_len, page_size, pages_per_row;
  int64_t num_pages; /* pool */
  int32_t read_trash, write_trash;
  int engine_table; /* the engine keeps the page table on the device */
  int32_t num_open;
  uint64_t ticket; /* of batch validation */
  cgr__row *row;   /* [max_rows] */
  int32_t *pages;  /* [max_rows][pages_per_row] */
  int32_t *dirty;  /* [max_rows] rows with changes, in order of their first one */
  int32_t num_dirty;
  int32_t *free_rows;   /* stack of closed rows */
  int32_t *steady_rows; /* [max_requests] of the steady batch */
  int32_t *steady_lens; /* [max_requests] */
  cgr__steady steady;
} cgr__rows;

/* Host memory: one block of cgr__rows_bytes, cleared by the caller. */
size_t cgr__rows_bytes(int32_t max_rows, int32_t max_requests, int32_t pages_per_row);
void cgr__rows_init(cgr__rows *rows, void *memory, int32_t max_rows, int32_t max_requests, int32_t pages_per_row);

/* The calls of cgr.h. A row of the prepared step may neither close nor rewind: the runtime refuses that before. */
cgr_status cgr__rows_open(cgr__rows *rows, int32_t *row);
cgr_status cgr__rows_close(cgr__rows *rows, int32_t row);
cgr_status cgr__rows_set_pages(cgr__rows *rows, int32_t row, int32_t first, const int32_t *pages, int32_t count);
cgr_status cgr__rows_rewind(cgr__rows *rows, int32_t row, int32_t num_tokens);
cgr_status cgr__rows_check(const cgr__rows *rows, const char *function, int32_t row);

/* Adds the pending steps of the steady batch to its rows. */
void cgr__rows_settle(cgr__rows *rows);

/* Where collecting stands: entry of the dirty list, and words of that row already given. */
typedef struct cgr__cursor {
  int32_t entry, word;
} cgr__cursor;

/* Copies up to `capacity` changes from the cursor on; returns how many and advances the cursor. */
int32_t cgr__rows_collect(cgr__rows *rows, cgr__cursor *cursor, cgr__change *changes, int32_t capacity);
/* Words that are dirty now. */
int64_t cgr__rows_dirty_words(const cgr__rows *rows);
/* The changes before the cursor have been launched. */
void cgr__rows_commit(cgr__rows *rows, cgr__cursor upto);
/* No row's last token is known to be the right one any more. */
void cgr__rows_forget_tokens(cgr__rows *rows);
/* Everything must be sent again: the device lost a step. */
void cgr__rows_all_dirty(cgr__rows *rows);

#endif
