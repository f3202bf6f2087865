/* The formats' kernels on the host device. */
#include <string.h>

#include "interop/formats.h"
#include "interop/launchers.h"
#include "interop/block_table/host.h"
#include "interop/fa3/host.h"
#include "interop/flashinfer/host.h"
#include "interop/flashmla/host.h"

void cgr__host_fa3(const void *pointer) {
  const cgr__fa3_args *args = (const cgr__fa3_args *)pointer;
  cgr__fa3_fill(&args->c, args->query_start_loc, args->seq_lens, args->live_requests, args->metadata);
}

/* Lengths that the planner refuses are told by the status. */
void cgr__host_flashinfer(const void *pointer) {
  const cgr__flashinfer_args *args = (const cgr__flashinfer_args *)pointer;
  const cgr__flashinfer_arrays arrays = { args->qo_indptr, args->kv_indptr, args->live_requests };
  int32_t request;
  bool rows, good = cgr__flashinfer_lengths_fit(&args->key, &arrays, &request, &rows) &&
                    cgr__flashinfer_fill(&args->key, &arrays, args->int_workspace);
  if (!good)
    memset(args->int_workspace, 0, (size_t)args->key.at.bytes);
  if (args->status)
    *args->status = good ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT;
}

void cgr__host_cascade(const void *pointer) {
  const cgr_flashinfer_cascade *c = (const cgr_flashinfer_cascade *)pointer;
  cgr__cascade_fault fault; /* only the status is reported */
  bool fits = !c->kv_indices || c->kv_indptr[cgr__cascade_live(c)] <= c->max_indices;
  bool good = fits && cgr__cascade_split(c, &fault);
  if (!good)
    cgr__cascade_clear(c);
  if (c->status)
    *c->status = good ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT;
}

void cgr__host_flashmla(const void *pointer) {
  const cgr__flashmla_args *args = (const cgr__flashmla_args *)pointer;
  cgr__flashmla_fill(&args->c, &args->lens, args->metadata);
}

void cgr__host_block_table(const void *pointer) {
  const cgr__block_table_args *args = (const cgr__block_table_args *)pointer;
  cgr__block_table_fill(&args->task, args->memory);
}
