/* Request rows: the host's copy of the persistent tables.
 *
 * A row is open from cgr_request_open to cgr_request_close. `computed` counts the tokens that are in the cache once every step
 * launched so far has run. A batch that repeats does not touch its rows step by step: its steps are counted in cgr__steady and
 * added when somebody looks (cgr__rows_settle). What the device does not have yet is kept by changes.h. */
#ifndef CGR_PLANNERS_REQUESTS_ROWS_H
#define CGR_PLANNERS_REQUESTS_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__row {
  int32_t computed; /* tokens in the cache */
  int32_t capacity; /* tokens that the pages of every group hold, from the first one on; at most max_seq_len */
  bool open;
  bool has_token;      /* the last token is on the device */
  bool dirty_computed; /* changes.h */
  bool listed;
  uint64_t tag;
  uint64_t mark;     /* ticket of the last validation that saw the row */
  uint64_t last_seq; /* last step that used it */
} cgr__row;

/* A row's pages in one group. */
typedef struct cgr__row_pages {
  int32_t first, end;             /* those it has; none: 0, 0 */
  int32_t set_end;                /* the furthest end since the row was opened: the device may have pages up to there */
  int32_t dirty_first, dirty_end; /* those that the device does not have; changes.h */
} cgr__row_pages;

/* A group as the rows see it. */
typedef struct cgr__page_group {
  int32_t page_size, pages_per_row;
  int32_t read_trash, write_trash;
  int64_t num_pages;
  bool engine_table;   /* the engine keeps the page table on the device: no row has pages here */
  int32_t *pages;      /* [max_rows][pages_per_row]; counts between the row's first and end alone */
  cgr__row_pages *row; /* [max_rows] */
  uint64_t *seen; /* [max_rows][seen_words] a bit per hashed page number; set for every page of the row, and perhaps for others */
  int32_t seen_words; /* a power of two */
} cgr__page_group;

/* Data of the engine's that rows have, in a buffer of its own. */
typedef struct cgr__row_dirty {
  int32_t first, end; /* words that the device does not have; changes.h */
  bool set;           /* the device may have other than padding, now or once the steps in flight have run */
} cgr__row_dirty;
typedef struct cgr__data {
  int32_t words;       /* of a row; 0: there is no such buffer */
  uint32_t padding[2]; /* of even and odd words */
  int32_t *words_of;   /* [max_rows][words] */
  cgr__row_dirty *row; /* [max_rows] */
} cgr__data;

/* A batch as it was validated. Rows, results and the slot refer to it; it does not change while a result does. */
typedef struct cgr__composition {
  int32_t num_requests, num_tokens;
  int32_t query_len;     /* of all requests; 0: mixed, or no requests */
  int32_t max_query_len; /* 0: no tokens */
  bool has_flags;        /* some request is partial */
  int32_t uses;          /* steps in the ring, and the prepared step, that refer to it */
  int32_t *rows;         /* [num_requests] */
  int32_t *query_lens;
  uint32_t *flags;
  uint64_t *tags;
} cgr__composition;

/* The composition of the last launched step, while it can repeat. */
typedef struct cgr__steady {
  cgr__composition *batch; /* NULL: none */
  int32_t headroom;        /* further steps that surely fit every row's pages and max_seq_len */
  int32_t pending;         /* steps launched and not yet added to the rows */
  bool has_tokens;         /* every row's last token is on the device */
  uint64_t last_seq;       /* of the pending steps */
} cgr__steady;

typedef struct cgr__rows {
  int32_t max_rows, max_seq_len, num_groups, num_data, num_open;
  int32_t num_dirty; /* entries of `dirty` */
  int32_t *dirty;    /* [max_rows] rows with changes */
  cgr__row *row;     /* [max_rows] */
  uint64_t ticket;   /* of batch validation */
  cgr__steady steady;
  int32_t *free_rows; /* stack of closed rows */
  cgr__page_group group[CGR__MAX_GROUPS];
  cgr__data data[CGR__MAX_DECLARED]; /* [num_data], by declared buffer */
} cgr__rows;

/* What the rows are made for. */
typedef struct cgr__rows_config {
  int32_t max_rows, max_seq_len, num_groups;
  const cgr_group *groups; /* with the defaults filled in */
  int32_t num_data;        /* entries of `data` up to the last that rows have */
  struct {
    int32_t words;
    uint32_t padding[2];
  } data[CGR__MAX_DECLARED];
} cgr__rows_config;

/* Host memory: one block of cgr__rows_bytes, cleared by the caller. */
size_t cgr__rows_bytes(const cgr__rows_config *config);
void cgr__rows_init(cgr__rows *rows, const cgr__rows_config *config, void *memory);

/* The calls of cgr.h; `function` names them in messages. That a row of the prepared step does not close, lose or replace pages or
 * change its length is the caller's to check: the step was validated, and its steady headroom counted, with what the row has. */
cgr_status cgr__rows_check(const cgr__rows *rows, const char *function, int32_t row);
cgr_status cgr__rows_open(cgr__rows *rows, uint64_t tag, int32_t *row);
cgr_status cgr__rows_close(cgr__rows *rows, int32_t row);
cgr_status cgr__rows_set_length(cgr__rows *rows, int32_t row, int32_t num_tokens);

/* pages.c */
cgr_status cgr__rows_check_group(const cgr__rows *rows, const char *function, int32_t group);
cgr_status cgr__rows_set_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages, int32_t count);
cgr_status cgr__rows_drop_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, int32_t count);
/* Whether set_pages with these would take a page of the row's away. */
bool cgr__rows_replaces_pages(const cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                              int32_t count);
/* Forgets all pages of a row that closes, or opens. */
void cgr__rows_clear_pages(cgr__rows *rows, int32_t row);
/* The group whose pages hold the fewest of the row's tokens. */
int32_t cgr__rows_shortest_group(const cgr__rows *rows, int32_t row);

/* data.c: sets a row's data, cgr__data.words words that need no alignment; padding when the row opens. */
void cgr__rows_set_data(cgr__rows *rows, int32_t row, int32_t buffer, const void *words);
void cgr__rows_clear_data(cgr__rows *rows, int32_t row);
void cgr__rows_fill_data(cgr__rows *rows);

/* Adds the pending steps of the steady batch to its rows. */
void cgr__rows_settle(cgr__rows *rows);
/* The same, before something changes that the steady batch's headroom rests on. */
void cgr__rows_leave_steady(cgr__rows *rows);

/* The rows of a step that ran although its launch reported a failure: what it sampled is not theirs. */
void cgr__rows_forget_tokens(cgr__rows *rows, const cgr__composition *batch);

#ifdef __cplusplus
}
#endif

#endif
