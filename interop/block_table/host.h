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

/* Reads the struct that messages call `what` and checks the key and what a graph keeps; query_len and kernel_page_size of the
 * copy are what they default to. */
cgr_status cgr__block_table_read_input(const char *function, const char *what, const cgr_block_table_input *input,
                                       cgr_block_table_input *copy);
/* What the planners take of an input that was read. */
void cgr__block_table_task_of(const cgr_block_table_input *input, cgr__block_table_task *task);
/* Of the key and of what a graph keeps. */
uint64_t cgr__block_table_hash(const cgr_block_table_input *input);

/* Checks the arrays, and the memory that is written. */
cgr_status cgr__block_table_check_memory(const char *function, const cgr__block_table_task *task, const void *memory,
                                         size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
