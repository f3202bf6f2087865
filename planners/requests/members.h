/* Members of the standing batch (standing.h), as far as rows, pages, changes and batches must know of them. */
#ifndef CGR_PLANNERS_REQUESTS_MEMBERS_H
#define CGR_PLANNERS_REQUESTS_MEMBERS_H

#include "planners/requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of cgr__rows_init, which has laid out the memory. */
void cgr__members_init(cgr__rows *rows);

/* Adds the standing steps that a row does not have yet. Rows that are no members have all. */
void cgr__members_settle(cgr__rows *rows, int32_t row);
/* The row's work, length or last token is another, or it has lost pages. Nothing for rows that are no members. */
void cgr__members_look_again(cgr__rows *rows, int32_t row);
/* It has got pages. Nothing for rows that are no members. */
void cgr__members_gain(cgr__rows *rows, int32_t row);
/* It is no member any more. */
void cgr__members_leave(cgr__rows *rows, int32_t row);

#ifdef __cplusplus
}
#endif

#endif
