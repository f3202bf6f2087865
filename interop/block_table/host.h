/* The block table on the host: its planner, which validates nothing, and what reads and checks an input for all calls. Nothing is
 * allocated. */
#ifndef CGR_INTEROP_BLOCK_TABLE_HOST_H
#define CGR_INTEROP_BLOCK_TABLE_HOST_H

#include "cgr/interop/block_table.h"
#include "interop/block_table/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes all words. */
void cgr__block_table_fill(const cgr__block_table_task *task, int32_t *memory);

/* Checks what depends on the key alone; then the arrays, and the memory that is written. */
cgr_status cgr__block_table_read_key(const char *function, const cgr_block_table_input *input, cgr__block_table_task *task);
cgr_status cgr__block_table_check_memory(const char *function, const cgr__block_table_task *task, const void *memory,
                                         size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
