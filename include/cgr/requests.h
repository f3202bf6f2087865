/* Requests: the rows of the persistent tables, their pages, lengths and data. */
#ifndef CGR_REQUESTS_H
#define CGR_REQUESTS_H

#include "cgr/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------------------- requests */

/* A request owns a row of the persistent tables from open to close. `tag` is the engine's name for it, handed back in results.
 * With every row open, opening is refused (CGR_ERROR_TOO_MANY_REQUESTS).
 * These calls change the host's copy of the tables; the changes travel with the next step that is prepared, and none is lost when
 * a step is cancelled or fails. While a step is prepared its rows cannot be closed, change their length or lose a page
 * (CGR_ERROR_STATE); they may get more pages. Refused inside `record` and calls (CGR_ERROR_STATE).
 *
 * A page that was taken away, or whose row was closed, may go to another request once the last step that used the row has
 * completed: cgr_request_info.last, also after a failed launch and after the row was opened again. It may be in several rows,
 * as a shared prefix is; a step writes it for one of them at most, and over no other's tokens. A page that is put below a row's
 * length, in place of another say, gets its tokens before the row's next step with tokens: from an earlier step of another row, or from the
 * engine. cgr_validation_layer checks these rules; it does not see what the engine writes.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_open(cgr_runtime *runtime, uint64_t tag, int32_t *row);
/* CGR_ERROR_STATE for a row that is in the standing batch: remove it first; and for one of the prepared step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_close(cgr_runtime *runtime, int32_t row);

/* Sets pages [first, first + count) of the row's table: page i holds tokens [i * page_size, (i + 1) * page_size). They must
 * adjoin the pages that the row has, or replace some; if it has none, they may be any. CGR_ERROR_PAGE_OUT_OF_RANGE for a page
 * outside the pool or reserved, CGR_ERROR_INVALID_ARGUMENT for one that the row has already, and for a `first` that would leave
 * a gap between these pages and those of the row; in these cases none is set. With a count of 0 the arguments are only checked.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                         int32_t count);

/* Takes pages [first, first + count) away, at the front or at the end of the row's pages: the table then holds the read-trash
 * page there, and a step that needs them is refused (CGR_ERROR_PAGES_MISSING). The next step of a row with c tokens, at least
 * (cgr_request_info.min_tokens), needs the pages from the first that its first new token sees: that of token c + 1 - window_left,
 * or c / chunk * chunk, in the layer of the group that sees furthest, the engine's backends included; with a layer that has
 * neither, or no layers, all. So a page that the windows have passed can be given back; a row may also begin without such pages.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_drop_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t count);

/* cgr_request_set_pages for many rows, all of them or none: entry i sets pages [firsts[i], firsts[i] + counts[i]) of row rows[i].
 * `rows`, `firsts` and `counts` are [num_rows]; `counts` NULL is one page each. `pages` is [sum of counts]: the page numbers of
 * entry 0, then those of entry 1, and so on. A call is for one group, because each group has page numbers of its own.
 * All entries are checked before any row changes. If one is wrong, the status is that of the single call (of an entry that is wrong
 * in two ways either), and the message says where in the arrays it is. If none is, the effect is that of single calls in the order of the entries. A row may be in `rows`
 * only once (CGR_ERROR_INVALID_ARGUMENT). With num_rows 0 the arrays may be NULL.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_requests_set_pages(cgr_runtime *runtime, int32_t group, int32_t num_rows, const int32_t *rows,
                                          const int32_t *firsts, const int32_t *counts, const int32_t *pages);
/* The same with cgr_request_drop_pages, for rows whose windows have passed a page: entry i takes away pages [firsts[i], firsts[i] +
 * counts[i]) of row rows[i].
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_requests_drop_pages(cgr_runtime *runtime, int32_t group, int32_t num_rows, const int32_t *rows,
                                           const int32_t *firsts, const int32_t *counts);

/* Sets how many of the row's tokens are in the cache: fewer (preemption, rejected drafts), or more, over pages that the engine or
 * other rows fill (a shared prefix), at the latest in the row's next step. The row's pages must reach that far; below its first
 * page those may be missing that no layer sees (cgr_request_drop_pages). That next step must give its token.
 * CGR_ERROR_PAGES_MISSING without the pages that the step will see; a shorter length may need some that windows had passed.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_length(cgr_runtime *runtime, int32_t row, int32_t num_tokens);

/* Sets the row's length in length set `set`, 1 .. num_length_sets - 1. It is 0 when a row opens, and stays as set. In steps of
 * the sequences, layers of the set attend to this many tokens: 0 is a row that is not encoded yet. Before a step of the set's own
 * tokens (cgr_variant), set it to a length that counts them. A length above cgr_config.max_other_lens is
 * CGR_ERROR_SEQUENCE_TOO_LONG; the row's pages of every group of the set have to cover it (CGR_ERROR_PAGES_MISSING), from the
 * first one on, and cannot be dropped from under it. CGR_ERROR_STATE while the row is in the prepared step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_other_length(cgr_runtime *runtime, int32_t row, int32_t set, int32_t num_tokens);

/* Sets a row's data in a buffer declared with CGR_SOURCE_STAGED and CGR_DIMENSION_ROWS: `data` is [width] elements of its dtype,
 * which need no alignment; `buffer` is its index in cgr_config.buffers. All 4-byte words from the first to the last that changed
 * travel with the next step that is prepared, 16 bytes each, and count toward max_changes: after a large row cgr_step_prepare may
 * answer CGR_ERROR_CHANGES_PENDING. A step that is prepared already does not see them.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_data(cgr_runtime *runtime, int32_t row, int32_t buffer, const void *data);

/* Why a request has ended, in a runtime whose rows have stops (stops.h). */
typedef enum cgr_end {
  CGR_END_NONE = 0,       /* it has not */
  CGR_END_STOP_TOKEN = 1, /* at one of its stop tokens */
  CGR_END_LENGTH = 2,     /* at its max_length */
  CGR_END_BEFORE = 3      /* in results alone: an earlier step has ended it, so this one did nothing for it */
} cgr_end;

typedef struct cgr_request_info {
  uint32_t size;
  int32_t open;       /* 0 or 1; the fields below are 0 for a closed row, except last */
  int32_t num_tokens; /* in the cache after every step launched so far; at most, while the result of one with guesses has not been
                         taken (min_tokens): the next step's pages have to reach as far as this bound and its new tokens go */
  int32_t has_token;  /* 1: the row's last token is on the device, CGR_TOKEN_LAST is allowed */
  uint64_t tag;
  cgr_mark last;      /* last step that used the row, for this owner or one before, and may still write its pages; seq 0: none */
  int32_t other_lengths[4]; /* [s]: the length in length set s; 0 for set 0 and for sets that do not exist */
  int32_t min_tokens; /* as num_tokens, at least, as if none of those guesses were accepted: what windows still see counts from
                         this bound. Both are the same, and exact, once all results have been taken. Calls that prepare, flush
                         or wait for a step take those of completed steps; this call looks for none */
  int32_t ended;      /* cgr_end: NONE, or why the row has ended, as far as results tell that have been taken. Both bounds are of a
                         row that goes on: one that ends in a step that has not completed will have fewer tokens */
} cgr_request_info;
#define CGR_REQUEST_INFO_INIT { (uint32_t)sizeof(cgr_request_info), 0, 0, 0, 0, { 0, 0, 0 }, { 0, 0, 0, 0 }, 0, 0 }
/* What the runtime knows of a row, open or closed. CGR_ERROR_INVALID_ARGUMENT: `row` is out of range.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_request_get_info(cgr_runtime *runtime, int32_t row, cgr_request_info *info);
/* The row has pages [*first, *end) in this group; both 0: none, or the table is the engine's own.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_request_get_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t *first, int32_t *end);

#ifdef __cplusplus
}
#endif
#endif
