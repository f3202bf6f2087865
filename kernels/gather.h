/* The gather: pages of some requests of a batch go to a cache of 16 bits, one after the other, each element times its factor. */
#ifndef CGR_KERNELS_GATHER_H
#define CGR_KERNELS_GATHER_H

#include <stdint.h>

#include "base/host_device.h"
#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As cgr_gather has it (cgr/gather.h). Nothing is validated but what is on the device. */
typedef struct cgr__gather_args {
  cgr_kv_view k, v;         /* of the pool: fp8_e4m3, fp8_e5m2, i8, fp16 or bf16 each */
  cgr_kv_view out_k, out_v; /* fp16 or bf16 each */
  int64_t num_pages, capacity, table_stride;
  const int32_t *kv_indptr, *kv_indices;
  const int32_t *first_request, *live_requests; /* NULL: 0; all */
  int32_t *block_table, *overflow;
  int32_t num_requests, num_kv_heads;
  int32_t head_dim, head_dim_v; /* multiples of CGR__GATHER_UNIT */
  int32_t page_size;            /* with it and the heads, a page of K or V has less than 2^31 elements */
  int32_t read_trash_page;
} cgr__gather_args;
extern const cgr__kernel cgr__kernel_gather; /* cgr__gather_args */

#define CGR__GATHER_UNIT 8 /* elements: 16 bytes of the output */

/* Requests first .. end - 1, whose pages begin at kv_indices[begin]. */
typedef struct cgr__gather_range {
  int32_t first, end;
  int64_t begin, pages;
} cgr__gather_range;

CGR__HOST_DEVICE int32_t cgr__gather_clamp(int32_t value, int32_t most) { return value < 0 ? 0 : value > most ? most : value; }

CGR__HOST_DEVICE cgr__gather_range cgr__gather_range_of(const cgr__gather_args *a) {
  cgr__gather_range r;
  r.end = cgr__gather_clamp(a->live_requests ? *a->live_requests : a->num_requests, a->num_requests);
  r.first = cgr__gather_clamp(a->first_request ? *a->first_request : 0, r.end);
  r.begin = a->kv_indptr[r.first];
  r.pages = a->kv_indptr[r.end] - r.begin;
  if (r.begin < 0 || r.pages < 0)
    r.pages = 0;
  return r;
}

/* How many pages of the output are written, page 0, which is zeros, included. */
CGR__HOST_DEVICE int64_t cgr__gather_written(const cgr__gather_args *a, const cgr__gather_range *r) {
  return r->pages < a->capacity ? r->pages + 1 : a->capacity;
}

/* The pages of one request, whose first one gets the number `page`. The table has the first `entries` of them. */
typedef struct cgr__gather_row {
  int64_t page, count, entries;
} cgr__gather_row;

CGR__HOST_DEVICE cgr__gather_row cgr__gather_row_of(const cgr__gather_args *a, const cgr__gather_range *r, int32_t request) {
  cgr__gather_row row;
  row.page = 1 + (int64_t)a->kv_indptr[request] - r->begin;
  row.count = (int64_t)a->kv_indptr[request + 1] - a->kv_indptr[request];
  if (row.count < 0 || row.page < 1)
    row.count = 0;
  row.entries = row.count < a->table_stride ? row.count : a->table_stride;
  if (row.entries > a->capacity - row.page)
    row.entries = row.page < a->capacity ? a->capacity - row.page : 0;
  return row;
}

/* The page of the pool that is copied to `page`, 1 or more, of the output. */
CGR__HOST_DEVICE int32_t cgr__gather_source(const cgr__gather_args *a, const cgr__gather_range *r, int64_t page) {
  const int32_t source = a->kv_indices[r->begin + page - 1];
  return source >= 0 && source < a->num_pages ? source : a->read_trash_page;
}

#ifdef __cplusplus
}
#endif
#endif
