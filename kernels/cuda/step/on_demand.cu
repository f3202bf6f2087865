/* The buffers that were asked for (kernels/on_demand.h). A row of blocks for each group: the first block writes what is one
 * number for each request, and each of the others the pages of one request. */
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/guard.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/step/scan.cuh"
#include "kernels/on_demand.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4; /* pages of a thread that are under way, and neighbours that it sums up */

/* starts[i] = sum of value(0 .. i - 1) for i up to `count`. Called by all threads. */
template <typename Value>
__device__ void write_starts(int32_t *starts, int32_t count, Value value, ScanScratch<int32_t> &scratch) {
  int32_t before = 0;
  if (threadIdx.x == 0)
    starts[0] = 0;
  for (int32_t base = 0; base < count; base += kThreads * kAhead) {
    int32_t first = base + (int32_t)threadIdx.x * kAhead, item[kAhead], own = 0, all;
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      item[k] = first + k < count ? value(first + k) : 0;
      own += item[k];
    }
    int32_t sum = before + block_scan(own, scratch, all) - own;
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      sum += item[k];
      if (first + k < count)
        starts[first + k + 1] = sum;
    }
    before += all;
  }
}

__device__ void write_batch(const cgr__on_demand &d, int32_t num_decodes) {
  __shared__ ScanScratch<int32_t> scratch;
  for (int32_t s = 0; s < d.num_sets; s++)
    if (d.kv_start_loc[s]) {
      const int32_t *lens = d.seq_lens[s];
      write_starts(
          d.kv_start_loc[s], d.padded_requests, [=](int32_t i) { return lens[i]; }, scratch);
    }
  for (int32_t s = 0; s < d.num_sets; s++) {
    if (d.prefill_kv_start_loc[s])
      write_starts(
          d.prefill_kv_start_loc[s], d.padded_requests, [&](int32_t j) { return cgr__prefill_len(&d, s, num_decodes, j); },
          scratch);
    for (int32_t j = (int32_t)threadIdx.x; d.prefill_seq_lens[s] && j < d.padded_requests; j += kThreads)
      d.prefill_seq_lens[s][j] = cgr__prefill_len(&d, s, num_decodes, j);
  }
  if (d.context_start_loc)
    write_starts(
        d.context_start_loc, d.padded_requests, [&](int32_t i) { return cgr__context_len(&d, i); }, scratch);
  for (int32_t i = (int32_t)threadIdx.x; d.context_lens && i < d.padded_requests; i += kThreads)
    d.context_lens[i] = cgr__context_len(&d, i);
  for (int32_t j = (int32_t)threadIdx.x; d.prefill_query_start_loc && j <= d.padded_requests; j += kThreads)
    d.prefill_query_start_loc[j] = cgr__prefill_query_start(&d, num_decodes, j);
}

__device__ void write_prefills(const cgr__on_demand &d, const cgr__on_demand_group &g, int32_t num_decodes) {
  for (int32_t j = (int32_t)threadIdx.x; g.prefill_kv_indptr && j <= d.padded_requests; j += kThreads)
    g.prefill_kv_indptr[j] = g.kv_indptr[cgr__prefill_place(&d, num_decodes, j)];
  for (int32_t j = (int32_t)threadIdx.x; g.prefill_kv_last_page_len && j < d.padded_requests; j += kThreads)
    g.prefill_kv_last_page_len[j] = cgr__prefill_last_page_len(&d, &g, num_decodes, j);
}

/* The read-trash page, its first one, from `count` on; `extent`: NULL, or up to where there may be anything else. All threads
 * call it. */
__device__ void clear_row(const cgr__on_demand_group &g, int32_t *row, int32_t count, int32_t *extent) {
  int64_t end = extent ? *extent : g.block_table_stride;
  for (int64_t p = count + (int32_t)threadIdx.x; p < end; p += kThreads)
    row[p] = cgr__block_padding(&g);
  if (!extent)
    return;
  __syncthreads(); /* all have read it */
  if (threadIdx.x == 0)
    *extent = count;
}

/* The pages of request i, in the list and in the tables; and the row of padding that falls to a decode. Called by all threads of
 * the block of request i. */
__device__ void write_pages(const cgr__on_demand_args &a, const cgr__on_demand_group &g, int32_t i) {
  int32_t begin = g.kv_indptr[i], count = g.kv_indptr[i + 1] - begin, row = a.batch.request_rows[i];
  int32_t num_decodes = g.prefill_block_table ? a.counts[CGR_COUNT_DECODES] : 0;
  int32_t place = cgr__prefill_row(&a.batch, num_decodes, i), of_prefill = i >= num_decodes ? count : 0;
  int32_t *list = g.kv_indices ? g.kv_indices + begin : nullptr;
  int32_t *table = g.block_table ? g.block_table + i * g.block_table_stride : nullptr;
  int32_t *prefills = g.prefill_block_table ? g.prefill_block_table + place * g.block_table_stride : nullptr;
  int32_t pages = list || table ? count : of_prefill;
  for (int32_t base = (int32_t)threadIdx.x; base < pages; base += kThreads * kAhead) {
    int32_t page[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; k++)
      page[k] = base + k * kThreads < pages ? cgr__page_entry(&g, row, base + k * kThreads) : g.read_trash_page;
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      int32_t p = base + k * kThreads;
      if (p >= pages)
        break;
      if (!cgr__page_is_readable(&g, page[k])) {
        claim_error(a.error, CGR_GUARD_PAGE, row, cgr__page_index(&g, p), page[k]);
        page[k] = g.read_trash_page;
      }
      int32_t entry = cgr__kernel_page(&g, page[k], p);
      if (list)
        list[p] = entry;
      if (table)
        table[p] = entry;
      if (prefills && p < of_prefill)
        prefills[p] = entry;
    }
  }
  if (table)
    clear_row(g, table, count, g.block_extents ? &g.block_extents[i] : nullptr);
  if (prefills)
    clear_row(g, prefills, of_prefill, g.prefill_block_extents ? &g.prefill_block_extents[place] : nullptr);
}

__global__ void __launch_bounds__(kThreads) on_demand_kernel(const __grid_constant__ cgr__on_demand_args a) {
  const cgr__on_demand_group &g = a.group[blockIdx.y];
  if (blockIdx.x > 0) {
    write_pages(a, g, (int32_t)blockIdx.x - 1);
    return;
  }
  int32_t num_decodes = a.counts[CGR_COUNT_DECODES];
  if (blockIdx.y == 0)
    write_batch(a.batch, num_decodes);
  write_prefills(a.batch, g, num_decodes);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_on_demand(const void *args, cudaStream_t stream) {
  const cgr__on_demand_args *a = static_cast<const cgr__on_demand_args *>(args);
  if (a->num_groups < 0 || a->num_groups > CGR__MAX_GROUPS || a->batch.num_sets < 0 || a->batch.num_sets > CGR__MAX_SETS ||
      a->batch.set < 0 || a->batch.set >= CGR__MAX_SETS || a->batch.padded_requests < 0 ||
      a->batch.padded_requests > CGR__MAX_REQUESTS)
    return (int)cudaErrorInvalidValue;
  bool pages = false;
  for (int32_t g = 0; g < a->num_groups; g++)
    pages |= a->group[g].kv_indices || a->group[g].block_table || a->group[g].prefill_block_table;
  dim3 grid(1 + (pages ? (unsigned)a->batch.padded_requests : 0),
            a->num_groups > 0 ? (unsigned)a->num_groups : 1u); /* without groups that of none, where nothing is asked for */
  return cgr::launch(cgr::on_demand_kernel, args, grid, dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_on_demand_preload(void) { return cgr::preload(cgr::on_demand_kernel, 0); }
