/* The ledger of pages: which requests have a page, and until which step those that no longer have it may use it. Kept only for a
 * device whose layer checks (cgr__rows_config.ledger): it finds what the engine's page allocator has done wrong, by page and row.
 *
 * It follows what rows get and lose. Steps are checked against it when they are prepared and leave nothing in it that a cancelled
 * one would have to take back. Groups whose page table is the engine's own are not in it: the host does not see their pages.
 *
 * The rules. A row's token is *sure* if it is known to be in its page; nothing may then write over it.
 * 1. A step writes a page by one row.
 * 2. A step writes no token at a place where another row has a sure one. Rows that only read a page may be any number.
 * 3. A row's own step makes its tokens sure: it has read them. A step without tokens of the row, or one that was abandoned, does
 * not.
 * 4. A length that is set forward takes over what other rows surely have; the tokens after that are not sure, because another row
 *    may append them as late as in the row's next step (a shared prefix).
 * 5. A page that is put below a row's length holds what other rows surely have in it by then. The rest is not sure: the engine or
 *    another row's step may yet write it. This is the same for a page that replaces another, that comes back, or that is put
 * before the others. Setting the length looks again at what other rows have.
 * 6. What 5 leaves open has to be written before the row's next step, which does not wait for its own appends as in 4. So for
 * that step, rule 2 takes all tokens of such a page below the row's length as sure.
 * 7. Guesses of a step whose result is not there may be rejected: they are not sure, so no row takes them over (4, 5). A row's
 * next step may write over its own, so it writes from the first of them on; no other row may.
 * 8. A page that no row has goes to another request only when every step that used it for a former one has completed. The request
 *    that had it may have it again at once; so may all, if no step has used the page. */
#ifndef CGR_REQUESTS_LEDGER_H
#define CGR_REQUESTS_LEDGER_H

#include "requests/batch.h"
#include "requests/page_edits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A page changes hands; `index`: where the row gets it. The row's own steps count as launched so far. */
void cgr__ledger_take(cgr__rows *rows, int32_t row, int32_t group, int32_t index, int32_t page);
void cgr__ledger_give(cgr__rows *rows, int32_t row, int32_t group, int32_t page);
/* Another request has the row. */
void cgr__ledger_open(cgr__rows *rows, int32_t row);
/* The row's length in a set will be `num_tokens`. */
void cgr__ledger_set_length(cgr__rows *rows, int32_t row, int32_t set, int32_t num_tokens);
/* So many guesses of the row turn out to be rejected: it will have that many tokens fewer, and no step of its own is why. */
void cgr__ledger_reject(cgr__rows *rows, int32_t row, int32_t count);
/* A step of a set after 0 was launched: the row's tokens in that set are in its pages. */
void cgr__ledger_fill(cgr__rows *rows, int32_t row, int32_t set);

/* Rule 8, now that step `completed` has completed. Arguments that cgr__rows_set_pages refuses pass. */
cgr_status cgr__ledger_check_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                   int32_t count, uint64_t completed);
/* The same for edits that cgr__page_edits_check has passed, as if they were made one after the other. */
cgr_status cgr__ledger_check_edits(cgr__rows *rows, const cgr__page_edits *edits, uint64_t completed);

/* Rules 1 and 2, for the step that will be number `seq`. */
cgr_status cgr__ledger_check_step(cgr__rows *rows, const cgr__checked_batch *checked, uint64_t seq);

#ifdef __cplusplus
}
#endif

#endif
