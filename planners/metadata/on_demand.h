/* On-demand buffers: computed from a step's metadata, wanted by some kernels only: the batch's pages as a list and as a table,
 * running sums of lengths, and the prefill part of the batch. The arithmetic is compiled for both host and device; the loops over
 * it are in planners/metadata/on_demand.c (the host device's kernel, and cgr_metadata_build) and in
 * kernels/cuda/step/on_demand.cu. */
#ifndef CGR_PLANNERS_METADATA_ON_DEMAND_H
#define CGR_PLANNERS_METADATA_ON_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"
#include "base/limits.h"
#include "planners/metadata/metadata.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of one group. Outputs that are NULL are not wanted. B: the padded requests. */
typedef struct cgr__on_demand_group {
  const int32_t *page_table; /* [rows][page_table_stride] */
  int64_t page_table_stride, num_pages;
  const int32_t *kv_indptr;        /* [B + 1] */
  const int32_t *kv_last_page_len; /* [B] */
  int32_t *kv_indices;             /* out: [0, kv_indptr[B]) is written */
  int32_t *block_table;            /* out, [B][block_table_stride]; rows have room for the longest sequence */
  int64_t block_table_stride;
  int32_t *block_extents; /* in and out, [B]: from this entry on a row of block_table holds the read-trash page. NULL: from none
                             yet, so rows are written to their end */
  int32_t *prefill_block_table;      /* out, [B][block_table_stride] */
  int32_t *prefill_block_extents;    /* of its rows, as block_extents */
  int32_t *prefill_kv_indptr;        /* out, [B + 1] */
  int32_t *prefill_kv_last_page_len; /* out, [B] */
  int32_t read_trash_page, write_trash_page;
  int32_t pages_each; /* n: pages of kv_indptr in one of page_table; 0: 1 */
  int32_t reserved;
} cgr__on_demand_group;

/* Of the whole batch. */
typedef struct cgr__on_demand {
  const int32_t *query_start_loc; /* [B + 1] */
  const int32_t *request_rows;    /* [B] */
  const int32_t *seq_lens[CGR__MAX_SETS];
  int32_t *kv_start_loc[CGR__MAX_SETS];         /* out, [B + 1] */
  int32_t *context_lens;                        /* out, [B] */
  int32_t *context_start_loc;                   /* out, [B + 1] */
  int32_t *prefill_query_start_loc;             /* out, [B + 1] */
  int32_t *prefill_seq_lens[CGR__MAX_SETS];     /* out, [B] */
  int32_t *prefill_kv_start_loc[CGR__MAX_SETS]; /* out, [B + 1] */
  int32_t num_sets, padded_requests;
  int32_t set, reserved; /* the length set whose tokens the step has */
} cgr__on_demand;

/* Tokens that were in the cache before the step; 0 for a request that a guard refused. */
CGR__HOST_DEVICE int32_t cgr__context_len(const cgr__on_demand *d, int32_t i) {
  int32_t seq_len = d->seq_lens[d->set][i];
  return seq_len > 0 ? seq_len - (d->query_start_loc[i + 1] - d->query_start_loc[i]) : 0;
}

/* The place of prefill j in the batch; the end of the batch for any j past the last prefill. */
CGR__HOST_DEVICE int32_t cgr__prefill_place(const cgr__on_demand *d, int32_t num_decodes, int32_t j) {
  return j < d->padded_requests - num_decodes ? num_decodes + j : d->padded_requests;
}

/* Where the tokens of prefill j begin, counted from those of the first prefill. */
CGR__HOST_DEVICE int32_t cgr__prefill_query_start(const cgr__on_demand *d, int32_t num_decodes, int32_t j) {
  return d->query_start_loc[cgr__prefill_place(d, num_decodes, j)] - d->query_start_loc[num_decodes];
}

CGR__HOST_DEVICE int32_t cgr__prefill_last_page_len(const cgr__on_demand *d, const cgr__on_demand_group *g, int32_t num_decodes,
                                                    int32_t j) {
  int32_t i = cgr__prefill_place(d, num_decodes, j);
  return i < d->padded_requests ? g->kv_last_page_len[i] : 1;
}

/* Tokens of prefill j in a length set. */
CGR__HOST_DEVICE int32_t cgr__prefill_len(const cgr__on_demand *d, int32_t set, int32_t num_decodes, int32_t j) {
  int32_t i = cgr__prefill_place(d, num_decodes, j);
  return i < d->padded_requests ? d->seq_lens[set][i] : 0;
}

/* The row of prefill_block_table that whoever writes the pages of request i writes, too: its own, of a decode one of the rows
 * after those of prefills. */
CGR__HOST_DEVICE int32_t cgr__prefill_row(const cgr__on_demand *d, int32_t num_decodes, int32_t i) {
  return i >= num_decodes ? i - num_decodes : d->padded_requests - num_decodes + i;
}

/* The index in the page table of page p of a request, which counts n to each of the table's. */
CGR__HOST_DEVICE int32_t cgr__page_index(const cgr__on_demand_group *g, int32_t p) {
  return g->pages_each > 1 ? (int32_t)((uint32_t)p / (uint32_t)g->pages_each) : p;
}

/* What the page table has of page p of a request; -1 where it has nothing. */
CGR__HOST_DEVICE int32_t cgr__page_entry(const cgr__on_demand_group *g, int32_t row, int32_t p) {
  int32_t index = cgr__page_index(g, p);
  return index < g->page_table_stride ? g->page_table[row * g->page_table_stride + index] : -1;
}

/* Page p of a request, which is one of the n in `page` of the table. */
CGR__HOST_DEVICE int32_t cgr__kernel_page(const cgr__on_demand_group *g, int32_t page, int32_t p) {
  return g->pages_each > 1 ? page * g->pages_each + (p - cgr__page_index(g, p) * g->pages_each) : page;
}

/* What a row of block_table holds after a request's pages. */
CGR__HOST_DEVICE int32_t cgr__block_padding(const cgr__on_demand_group *g) { return cgr__kernel_page(g, g->read_trash_page, 0); }

/* Whether kernels may read the page. */
CGR__HOST_DEVICE bool cgr__page_is_readable(const cgr__on_demand_group *g, int32_t page) {
  return page >= 0 && page < g->num_pages && page != g->write_trash_page;
}

/* Writes what is wanted. `num_decodes`: requests before the first prefill, 0 .. B. Pages that may not be read are refused, and
 * the read-trash page takes their place. Nothing is allocated. */
void cgr__on_demand_fill(const cgr__on_demand *d, int32_t num_decodes);
void cgr__on_demand_fill_group(const cgr__on_demand *d, const cgr__on_demand_group *g, int32_t num_decodes,
                               cgr__refuse_function refused, void *context);

#ifdef __cplusplus
}
#endif
#endif
