/* The ledger of pages: which requests have a page, and until which step those that no longer have it may use it. Kept only for a
 * device whose layer checks (cgr__rows_config.ledger): it finds what the engine's page allocator has done wrong, by page and row.
 *
 * It follows what rows get and lose. Steps are checked against it when they are prepared and leave nothing in it that a cancelled
 * one would have to take back. Groups whose page table is the engine's own are not in it: the host does not see their pages. */
#ifndef CGR_REQUESTS_LEDGER_H
#define CGR_REQUESTS_LEDGER_H

#include "requests/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A page changes hands. The row's own steps count as launched so far. */
void cgr__ledger_take(cgr__rows *rows, int32_t row, int32_t group, int32_t page);
void cgr__ledger_give(cgr__rows *rows, int32_t row, int32_t group, int32_t page);
/* Another request has the row. */
void cgr__ledger_open(cgr__rows *rows, int32_t row);
/* The row's length in a set will be `num_tokens`. */
void cgr__ledger_set_length(cgr__rows *rows, int32_t row, int32_t set, int32_t num_tokens);
/* A step of a set after 0 was launched: the row's tokens in that set are in its pages. */
void cgr__ledger_fill(cgr__rows *rows, int32_t row, int32_t set);

/* Whether the row may have these pages now that step `completed` has completed: no other request's step that is in flight may use
 * one, unless a row still has it, which then shares it. Arguments that cgr__rows_set_pages refuses pass. */
cgr_status cgr__ledger_check_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                   int32_t count, uint64_t completed);

/* Whether the step, which will be number `seq`, writes each page by one row, and no token of another row that has the page. */
cgr_status cgr__ledger_check_step(cgr__rows *rows, const cgr__checked_batch *checked, uint64_t seq);

#ifdef __cplusplus
}
#endif

#endif
