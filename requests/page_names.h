/* How messages name the arguments of edits of pages. */
#ifndef CGR_REQUESTS_PAGE_NAMES_H
#define CGR_REQUESTS_PAGE_NAMES_H

#include "requests/pages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "first", or "firsts[3]". `page` is that of pages[i]. */
typedef struct cgr__page_edit_names {
  char first[24], count[24], page[48];
} cgr__page_edit_names;
cgr__page_edit_names cgr__page_edit_names_of(const cgr__page_edit *edit, int32_t i);

#ifdef __cplusplus
}
#endif

#endif
