#include "base/status.h"
#include "interop/block_table/host.h"
#include "interop/formats.h"

cgr_status cgr_block_table_enqueue(cgr_device *device, const cgr_block_table_input *input, void *memory, size_t bytes,
                                   cudaStream_t stream) {
  const char *function = "cgr_block_table_enqueue";
  cgr__block_table_args args = { .memory = memory };
  cgr_block_table_input in;
  CGR__TRY(cgr__check_enqueue(function, device, stream));
  CGR__TRY(cgr__block_table_read_input(function, "input", input, &in));
  cgr__block_table_task_of(&in, &args.task);
  CGR__TRY(cgr__block_table_check_memory(function, &args.task, memory, bytes));
  return cgr__enqueue_kernel(function, device, &cgr__kernel_block_table, &args, stream);
}
