/* Members of the standing batch (standing.h), as far as rows, pages, changes and batches need to know them. */
#ifndef CGR_REQUESTS_MEMBERS_H
#define CGR_REQUESTS_MEMBERS_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the standing steps that a row does not have yet. Rows that are not members have them all. */
void cgr__members_sync(cgr__rows *rows, int32_t row);
/* The row's work, length or last token has changed, or it has lost pages. Does nothing for rows that are not members. */
void cgr__members_revalidate(cgr__rows *rows, int32_t row);
/* The row has got pages. Does nothing for rows that are not members. */
void cgr__members_add_pages(cgr__rows *rows, int32_t row);
/* The row is no longer a member. */
void cgr__members_leave(cgr__rows *rows, int32_t row);

#ifdef __cplusplus
}
#endif

#endif
