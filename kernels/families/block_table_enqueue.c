#include "base/status.h"
#include "kernels/families/families.h"
#include "planners/families/block_table_host.h"

cgr_status cgr_block_table_enqueue(cgr_device *device, const cgr_block_table_input *input, void *memory, size_t bytes,
                                   cudaStream_t stream) {
  cgr__block_table_args args = { .memory = memory };
  CGR__TRY(cgr__check_family_device("cgr_block_table_enqueue", device, stream));
  CGR__TRY(cgr__block_table_read("cgr_block_table_enqueue", input, &args.task));
  CGR__TRY(cgr__block_table_check_memory("cgr_block_table_enqueue", &args.task, memory, bytes));
  return cgr__enqueue_family("cgr_block_table_enqueue", device, &cgr__kernel_block_table, &args, stream);
}
