/* The planners of other projects' metadata. */
#include "kernels/families/families.h"
#include "kernels/host/launchers.h"
#include "planners/families/block_table_host.h"
#include "planners/families/fa3_host.h"
#include "planners/families/flashmla_host.h"

void cgr__host_fa3(const void *pointer) {
  const cgr__fa3_args *args = (const cgr__fa3_args *)pointer;
  cgr__fa3_fill(&args->c, args->query_start_loc, args->seq_lens, args->live_requests, args->metadata);
}

void cgr__host_flashmla(const void *pointer) {
  const cgr__flashmla_args *args = (const cgr__flashmla_args *)pointer;
  cgr__flashmla_fill(&args->c, &args->lens, args->metadata);
}

void cgr__host_block_table(const void *pointer) {
  const cgr__block_table_args *args = (const cgr__block_table_args *)pointer;
  cgr__block_table_fill(&args->task, args->memory);
}
