/* The logical K or V of a request, gathered from a paged cache, for tests. */
#ifndef CGR_KERNELS_REFERENCE_GATHER_H
#define CGR_KERNELS_REFERENCE_GATHER_H

#include <stdint.h>

#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `pages` is the request's row of the page table; `out` is [seq_len][num_kv_heads][head_dim]. `view->base` is memory of the
 * host, and so is `view->scale`, whose factors the elements are multiplied by. */
void cgr__reference_gather(const cgr_kv_view *view, const int32_t *pages, int32_t page_size, int32_t seq_len,
                           int32_t num_kv_heads, int32_t head_dim, double *out);

/* The address of element (page, token of the page, head, 0) of a view. */
void *cgr__reference_kv_element(const cgr_kv_view *view, int64_t page, int64_t token, int64_t head);

#ifdef __cplusplus
}
#endif
#endif
