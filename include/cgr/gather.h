/* Pages of a cache of 8 bits as 16-bit values, for prefill kernels that cannot read codes, on the host or on a device. Not
 * included by cgr.h. */
#ifndef CGR_GATHER_H
#define CGR_GATHER_H

#include "cgr/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is gathered: all pages of requests first .. live - 1 of a batch, one request after the other, into an output of `capacity`
 * pages, with a block table that names them there. With first_request at word CGR_COUNT_DECODES of CGR_BUFFER_COUNTS these are
 * the prefills, in a batch that has its decodes first.
 *
 * Index i of request b gets page 1 + kv_indptr[b] - kv_indptr[first] + i of the output, so that its pages follow from 1 on without
 * gaps. All tokens of a page are written, those that no request has yet, too. Page 0 becomes zeros: the read-trash page of kernels
 * that read the output. A page that does not fit the capacity is not written, and its entry of the table is 0. Other pages of the
 * output stay as they were.
 *
 * A value is its element times its factor, in fp32, rounded to nearest, ties to even. Factors are read when the kernel runs; the
 * output holds the values, so attention over it gets no k_scale or v_scale. A pool of 16 bits is copied, or converted from fp16 to
 * bf16 or back.
 *
 * A graph keeps every field and pointer; each replay reads the arrays, factors and pages anew. A runtime does not know them: name
 * the memory of a gather between pieces with cgr_record_use. On the device, a first_request or live_requests out of range becomes
 * the nearest that is in range, and a page outside the pool is replaced by read_trash_page. */
typedef struct cgr_gather {
  uint32_t size;
  int32_t num_requests;         /* B, padding included, 1 .. 4096 */
  int32_t num_kv_heads;         /* 1 .. 1024 */
  int32_t head_dim;             /* 8 .. 65536, a multiple of 8; of 16 where the pool has 8 bits */
  int32_t head_dim_v;           /* the same of v; 0: head_dim */
  int32_t page_size;            /* tokens of a page, 1 .. 1024; a page of K or V has fewer than 2^31 elements */
  int32_t read_trash_page;      /* a page of the pool that may be read and means nothing */
  int32_t reserved;
  int64_t num_pages;            /* of the pool, below 2^31 */
  int64_t capacity;             /* pages of the output, page 0 included, 1 .. 2^31 - 1 */
  int64_t table_stride;         /* P: entries of a row of block_table, 1 .. 2^31 */
  cgr_kv_view k, v;             /* of the pool: fp8_e4m3, fp8_e5m2, i8, fp16 or bf16, each its own; i8 has factors. Any strides of
                                   the factors; a pool of 16 bits has none */
  cgr_kv_view out_k, out_v;     /* of the output: fp16 or bf16 each, without factors. They overlap neither each other nor the
                                   pool and its factors, which is checked, nor the arrays, which is not */
  const int32_t *kv_indptr;     /* [num_requests + 1] running sum of pages, read up to the live ones: CGR_BUFFER_KV_INDPTR. Pages
                                   have page_size tokens: if the group has a kernel_page_size, set page_size to that, and give views
                                   of such pages */
  const int32_t *kv_indices;    /* pages, one request after the other: CGR_BUFFER_KV_INDICES */
  const int32_t *first_request; /* [1] 0 .. the live ones; NULL: 0 */
  const int32_t *live_requests; /* [1] 0 .. num_requests; NULL: all are live */
  int32_t *block_table;         /* out, [num_requests][table_stride]: row j is that of request first + j, its pages of the output
                                   and then 0; rows without a request are 0 */
  int32_t *overflow;            /* out, [1] pages that are not in the table, since they did not fit the capacity or their row; 0:
                                   all are there */
} cgr_gather;
#define CGR_GATHER_INIT                                                                                            \
  { (uint32_t)sizeof(cgr_gather), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 },         \
    { NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 },                          \
    { NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 }, NULL, NULL, NULL, NULL, NULL, NULL }

/* In memory of the host, views and factors too. CGR_ERROR_UNSUPPORTED: dtypes, i8 without factors, 16 bits with factors, head dims,
 * pages of 2^31 elements. CGR_ERROR_NULL_POINTER: an array or a view. CGR_ERROR_PAGE_OUT_OF_RANGE: read_trash_page.
 * CGR_ERROR_INVALID_ARGUMENT: other numbers, strides, overlaps. Numbers and pages in arrays that are out of range, which the device
 * replaces, are refused here, and so are rows with more pages than the table has entries; `overflow` counts what does not fit the
 * capacity. Neither function checks where allocations end.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_gather_build(const cgr_gather *gather);

/* The same by one kernel on `stream`: views, factors and arrays are memory of the device, and are read and written when it runs.
 * The first call on a device loads the kernel, and must not be inside a capture.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_gather_enqueue(cgr_device *device, const cgr_gather *gather, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
