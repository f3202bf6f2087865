/* Request rows: the host's copy of the persistent tables.
 *
 * A row is open from cgr_request_open to cgr_request_close. `computed` counts the tokens that are in the cache once every step
 * launched so far has run. The rows of the members (members.h) are not touched step by step: their steps are added when a row is
 * read. The members are of a lane (lane_batches.h). What the device does not have yet is kept by changes.h. */
#ifndef CGR_REQUESTS_ROWS_H
#define CGR_REQUESTS_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "buffers/layout.h"
#include "cgr/cgr.h"
#include "requests/lane_batches.h"
#include "requests/window_spans.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__ROW_BYTES 64 /* a cache line */
typedef struct cgr__row {
  int32_t computed; /* tokens in the cache; of a member, see cgr__rows_computed */
  int32_t capacity; /* tokens up to which the pages of every group of length set 0 go; at most max_lens[0] */
  int32_t least;    /* with fewer tokens in the cache, a step would need pages before the row's first one in some such group */
  bool open;
  bool has_token; /* the last token is on the device */
  bool listed;    /* changes.h, like the next */
  uint8_t dirty;  /* CGR__DIRTY_* */
  uint64_t tag;
  uint64_t mark;     /* ticket of the last validation that saw the row */
  uint64_t last_seq; /* last step that used it */
  /* of members: members.h */
  uint64_t since; /* steps of the members that have been added to the row, or that were before it */
  int32_t place;  /* among the members, or near it while these follow; -1: it is no member */
  int32_t query_len;
  int16_t deadline;       /* in the members' schedule; -1: none */
  bool partial;           /* its step leaves no token to go on with */
  bool lacks_token;       /* it lacks a token for the next step */
  bool irregular;         /* it is in the list of that name */
  bool shared_prefix : 1; /* its cache may have tokens that others append only in the next step that it attends in */
  uint8_t ended : 2;      /* cgr_end, as far as results tell that have been taken: its steps add no tokens (stops.h) */
  uint16_t slack;         /* of `computed`, those that may turn out to be rejected guesses: guesses.h */
} cgr__row;

#define CGR__DIRTY_LENGTH 1
#define CGR__DIRTY_DATA 2
#define CGR__DIRTY_PAGES 4 /* shifted by the group */
#define CGR__DIRTY_ALL_PAGES (CGR__DIRTY_PAGES * ((1 << CGR__MAX_GROUPS) - 1))
#define CGR__DIRTY_DRAFTS 128 /* lengths in drafts */

/* What a row has in a draft, a program after the first: drafts.h. As in cgr__row. */
typedef struct cgr__draft_row {
  int32_t computed, capacity, least;
  uint16_t slack; /* tokens that the target may take off its own length, and so off this one */
  bool shared_prefix;
  bool dirty;        /* the device does not have the length */
  uint64_t followed; /* the last step in which the row caught up with the target; 0: its length does not depend on the target's */
} cgr__draft_row;

/* What a call that edits many rows does with a row's pages. */
typedef enum cgr__edited {
  CGR__EDITED_NOT,
  CGR__EDITED_APPENDS, /* one page after those it has */
  CGR__EDITED_GAINS,
  CGR__EDITED_LOSES
} cgr__edited;

/* A row's pages in one group. What the device does not have is kept as two stretches: with windows, a row gives back pages at its
 * front when it gets others at its end, and what is between may be long. */
typedef struct cgr__row_pages {
  int32_t first, end;             /* those it has; none: 0, 0 */
  int32_t set_end;                /* the furthest end since the row was opened: the device may have pages up to there */
  int32_t dirty_first, dirty_end; /* those that the device does not have; changes.h */
  int32_t gone_first, gone_end;   /* places before `first` that the device does not yet know to be without a page */
  cgr__edited edited;             /* page_edits.h; CGR__EDITED_NOT between calls */
} cgr__row_pages;

/* A group as the rows see it. */
typedef struct cgr__page_group {
  int32_t page_size, pages_per_row;
  int32_t read_trash, write_trash;
  int32_t length_set, program;
  int64_t num_pages;
  cgr__window_spans window_spans; /* of its layers */
  bool engine_table;              /* the engine keeps the page table on the device: no row has pages here */
  int32_t *pages;                 /* [max_rows][pages_per_row]; only the row's pages in [first, end) count */
  cgr__row_pages *row;            /* [max_rows] */
  uint64_t *page_filter; /* [max_rows][filter_words] a bit per hashed page number; set for every page of the row, and perhaps for
                            others */
  int32_t filter_words;  /* a power of two */
} cgr__page_group;

/* Data that the engine keeps for rows, in a buffer of its own. */
typedef struct cgr__row_dirty {
  int32_t first, end; /* words that the device does not have; changes.h */
  bool set;           /* the device may have something other than padding, now or once the steps in flight have run */
} cgr__row_dirty;
typedef struct cgr__data {
  int32_t words;       /* of a row; 0: there is no such buffer */
  uint32_t padding[2]; /* of even and odd words */
  int32_t *words_of;   /* [max_rows][words] */
  cgr__row_dirty *row; /* [max_rows] */
} cgr__data;

/* What a request that no longer has a page has done with it. */
typedef struct cgr__ledger_use {
  uint64_t seq;     /* its last step then; 0: there is no such request */
  uint32_t request; /* cgr__ledger.request */
  int32_t row;
} cgr__ledger_use;

typedef struct cgr__ledger_page { /* a cache line */
  cgr__ledger_use last, other;    /* the latest, and the latest of another request than that */
  uint64_t taken_seq;             /* the last step of the row that took the page last, as it took it */
  uint64_t ticket;                /* of the last step that was checked and writes the page */
  uint32_t taken;                 /* the request of that row */
  int32_t writer;                 /* the row that writes it in that step */
  int32_t holders;                /* rows that have it */
} cgr__ledger_page;

/* The ledger of pages: ledger.h. */
typedef struct cgr__ledger {
  cgr__ledger_page *page[CGR__MAX_GROUPS]; /* [num_pages]; NULL: the engine keeps the table */
  uint32_t *request;                       /* [max_rows] number of the request that has, or had, the row */
  uint32_t num_requests;
  uint64_t ticket;                 /* of the step that was checked last */
  int32_t *sure[CGR__MAX_SETS];    /* [max_rows] by length set: tokens that are surely in the row's pages; in set 0 only of rows
                                      with a `shared_prefix`, the others' are all */
  int32_t *known[CGR__MAX_GROUPS]; /* [max_rows][pages_per_row] of each page: its tokens that were valid when it was set below
                                      the row's length; CGR__LEDGER_ALL: it was not, or the row has had a step since */
  int32_t *known_at;               /* [max_rows] `known` counts while the row has this many tokens in the cache; else all is
                                      CGR__LEDGER_ALL */
  uint64_t *reads;                 /* [max_rows] ticket of the last step that was checked and in which the row has tokens */
} cgr__ledger;

#define CGR__LEDGER_ALL INT32_MAX

/* What a step verifies of a row. */
typedef struct cgr__guess {
  int32_t row, place; /* of its request in the batch */
  int32_t guesses;
  uint32_t epoch; /* of the row, by then */
} cgr__guess;

/* The guesses of steps whose results have not been taken: guesses.h. Without guesses there is no memory, and there are no notes.
 */
typedef struct cgr__guesses {
  int64_t num_notes;
  uint64_t stops_upto;         /* the last step that may end rows */
  uint64_t verified, accepted; /* by steps whose results have been taken */
  uint64_t taken;              /* the results up to this step have been; while `has_notes` */
  uint64_t generation;         /* losses up to the last one whose step is among them */
  int32_t *count;              /* [ring_depth] notes of the step in this ring slot */
  cgr__guess *note;            /* [ring_depth][max_requests] */
  uint32_t *epoch;             /* [max_rows] counts what makes notes of the row void */
  uint64_t *since;             /* [max_rows] steps up to this one end another request than the row's, or another length; only
                                  with stops */
} cgr__guesses;

/* The fields that a step reads come first. */
typedef struct cgr__rows {
  int32_t num_dirty; /* entries of `dirty` */
  bool has_ledger;
  bool has_notes;             /* results are to be taken: there are notes of guesses, or a step that may end rows */
  bool has_stops;             /* rows can have stops: stops.h */
  int64_t dirty_words;        /* at most this many words have changed; 0 when num_dirty is 0 */
  cgr__lane_batches *batches; /* those that count on the rows: of the one lane */
  int32_t *dirty;             /* [max_rows] rows with changes */
  cgr__row *row;              /* [max_rows] */
  const cgr__limits *limits;
  int32_t num_data, num_open;
  int32_t lengths;    /* the data of the rows' lengths in the sets after 0; -1: there are none */
  int32_t stops;      /* the data of the rows' stops, with has_stops */
  uint64_t ticket;    /* of batch validation */
  int32_t *free_rows; /* stack of closed rows */
  cgr__page_group group[CGR__MAX_GROUPS];
  cgr__data data[CGR__MAX_DECLARED]; /* [num_data], by declared buffer */
  cgr__ledger ledger;
  cgr__guesses guesses;
  cgr__draft_row *draft[CGR__MAX_PROGRAMS]; /* [max_rows] by program; of the first, and of those that there are not, NULL */
} cgr__rows;

static inline void cgr__rows_prefetch(const cgr__rows *rows) { __builtin_prefetch(rows, 1); }

/* Those of the lane whose standing batch has the row. */
static inline cgr__lane_batches *cgr__rows_batches_of(const cgr__rows *rows, int32_t row) {
  (void)row; /* there is one lane */
  return rows->batches;
}

/* What the rows are made for. */
typedef struct cgr__rows_config {
  const cgr__limits *limits;                       /* which outlive the rows */
  const cgr_group *groups;                         /* with the defaults filled in */
  cgr__window_spans window_spans[CGR__MAX_GROUPS]; /* of their layers */
  int32_t lengths;                                 /* as in cgr__rows, where num_sets is more than 1 */
  int32_t stops;                                   /* the same, where limits->stop_words is not 0 */
  bool ledger;                                     /* there is one */
  int32_t num_data;                                /* entries of `data` up to the last that rows have */
  struct {
    int32_t words;
    uint32_t padding[2];
  } data[CGR__MAX_DECLARED];
} cgr__rows_config;

/* Host memory: one block of cgr__rows_bytes, cleared by the caller. */
size_t cgr__rows_bytes(const cgr__rows_config *config);
void cgr__rows_init(cgr__rows *rows, cgr__lane_batches *batches, const cgr__rows_config *config, void *memory);

/* The calls of requests.h, here and in pages.h and data.h; `function` names them in messages. The caller checks that a row of the
 * prepared step does not close, lose or replace pages, or change its length: the step was validated with what
 * the row has. */
cgr_status cgr__rows_check(const cgr__rows *rows, const char *function, int32_t row);
cgr_status cgr__rows_open(cgr__rows *rows, uint64_t tag, int32_t *row);
cgr_status cgr__rows_close(cgr__rows *rows, int32_t row);
cgr_status cgr__rows_set_length(cgr__rows *rows, int32_t row, int32_t num_tokens);

/* Tokens in the cache, at most: those of guesses that may be rejected are among them (guesses.h). */
/* Of a member, with the steps that are not in the row yet. */
static inline int32_t cgr__member_computed(const cgr__members *standing, const cgr__row *row) {
  return row->computed + (row->ended ? 0 : (int32_t)(standing->steps - row->since) * row->query_len);
}

/* The same of any row. */
static inline int32_t cgr__rows_computed(const cgr__rows *rows, int32_t row) {
  const cgr__row *entry = &rows->row[row];
  return entry->place < 0 ? entry->computed : cgr__member_computed(&cgr__rows_batches_of(rows, row)->members, entry);
}

/* At least, of a row that is up to date. */
static inline int32_t cgr__row_least_computed(const cgr__row *row) { return row->computed - row->slack; }

/* Whether a row that is up to date has the pages for a step with `query_len` new tokens: those of all that these see, and their
 * own, whatever guesses are accepted. (No new tokens see nothing: the pages may all have been given back. A row that has ended
 * has none, and one that ends before the host knows needs none either.) Once a row's front is enough, it stays enough for later
 * steps, until pages are dropped or its length is set; so a batch that repeats counts the steps up to `capacity` and no more. */
static inline bool cgr__row_can_step(const cgr__row *row, int32_t query_len) {
  return query_len == 0 || row->ended ||
         (cgr__row_least_computed(row) >= row->least && (int64_t)row->computed + query_len <= row->capacity);
}

/* The rows of a step that ran although its launch reported a failure: what it sampled is not theirs. */
void cgr__rows_forget_tokens(cgr__rows *rows, const cgr__batch_layout *batch);

#ifdef __cplusplus
}
#endif

#endif
