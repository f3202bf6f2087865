/* Plans of C, for the tests in Python to compare theirs with: writes the bytes of every planner, one after the other.
 *   plans REQUESTS FILE      where request i has i % 5 + 1 new tokens, and 37 * (i + 1) in its sequence */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgr/bindings.h"

enum { MAX = 256 };

static int32_t query_lens[MAX], seq_lens[MAX], starts[MAX + 1], indptr[MAX + 1], rows[MAX], table[MAX * 64];
static _Alignas(64) unsigned char memory[1 << 20];

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, cgr_last_message());
  return 1;
}

static int put(FILE *out, const char *what, cgr_status status, size_t bytes) {
  if (status != CGR_OK)
    return fail(what);
  fwrite(memory, 1, bytes, out);
  memset(memory, 0, sizeof memory);
  return 0;
}

static int put_plan(FILE *out, int32_t n) {
  cgr_plan_input input = CGR_PLAN_INPUT_INIT;
  size_t bytes = 0;
  input.num_requests = n, input.query_lens = query_lens, input.seq_lens = seq_lens, input.num_parts = 132, input.head_blocks = 8;
  if (cgr_plan_size(&input, &bytes) != CGR_OK)
    return fail("cgr_plan_size");
  return put(out, "cgr_plan_build", cgr_plan_build(&input, memory, bytes), bytes);
}

static int put_fa3(FILE *out, int32_t n) {
  cgr_fa3_input input = CGR_FA3_INPUT_INIT;
  cgr_fa3_sizes sizes = CGR_FA3_SIZES_INIT;
  input.num_requests = n, input.num_q_heads = 32, input.num_kv_heads = 8, input.head_dim = 128, input.dtype = CGR_DTYPE_BF16;
  input.page_size = 16, input.max_query_len = 5, input.max_seq_len = 16384, input.causal = 1, input.num_splits = 16;
  input.num_multiprocessors = 132, input.query_start_loc = starts, input.seq_lens = seq_lens;
  if (cgr_fa3_size(&input, &sizes) != CGR_OK)
    return fail("cgr_fa3_size");
  return put(out, "cgr_fa3_build", cgr_fa3_build(&input, memory, sizes.metadata_bytes), sizes.metadata_bytes);
}

static int put_flashinfer(FILE *out, int32_t n) {
  cgr_flashinfer_decode_input input = CGR_FLASHINFER_DECODE_INPUT_INIT;
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
  input.num_requests = n, input.kv_indptr = indptr, input.num_q_heads = 32, input.num_kv_heads = 8, input.head_dim = 128;
  input.page_size = 16, input.num_multiprocessors = 132, input.blocks_per_multiprocessor = 2;
  if (cgr_flashinfer_decode_size(&input, &plan) != CGR_OK)
    return fail("cgr_flashinfer_decode_size");
  return put(out, "cgr_flashinfer_decode_build", cgr_flashinfer_decode_build(&input, memory, plan.int_bytes, &plan),
             plan.int_bytes);
}

static int put_flashmla(FILE *out, int32_t n) {
  cgr_flashmla_input input = CGR_FLASHMLA_INPUT_INIT;
  size_t bytes = 0;
  input.num_requests = n, input.num_parts = 72, input.query_len = 1, input.seq_lens = seq_lens;
  if (cgr_flashmla_size(&input, NULL, &bytes) != CGR_OK)
    return fail("cgr_flashmla_size");
  return put(out, "cgr_flashmla_build", cgr_flashmla_build(&input, memory, bytes), bytes);
}

static int put_block_table(FILE *out, int32_t n) {
  cgr_block_table_input input = CGR_BLOCK_TABLE_INPUT_INIT;
  cgr_block_table_layout layout = CGR_BLOCK_TABLE_LAYOUT_INIT;
  input.num_requests = n, input.query_len = 5, input.max_seq_len = 1024, input.max_pages = 64, input.page_size = 16;
  input.num_rows = n + 1, input.num_pages = 1 << 20, input.page_table_stride = 64, input.page_table = table, input.rows = rows;
  input.seq_lens = seq_lens, input.query_start_loc = starts;
  if (cgr_block_table_get_layout(&input, &layout) != CGR_OK)
    return fail("cgr_block_table_get_layout");
  return put(out, "cgr_block_table_build", cgr_block_table_build(&input, memory, layout.bytes), layout.bytes);
}

int main(int argc, char **argv) {
  const int32_t n = argc > 1 ? atoi(argv[1]) : 0;
  FILE *out = argc > 2 ? fopen(argv[2], "wb") : NULL;
  if (n < 1 || n > 26 || out == NULL)
    return 2;
  for (int32_t i = 0; i < n; i++) {
    query_lens[i] = i % 5 + 1, seq_lens[i] = 37 * (i + 1), rows[i] = n - 1 - i;
    starts[i + 1] = starts[i] + query_lens[i], indptr[i + 1] = indptr[i] + (seq_lens[i] + 15) / 16;
  }
  for (int32_t i = 0; i < (n + 1) * 64; i++)
    table[i] = 2 + i;
  const int failed =
      put_plan(out, n) || put_fa3(out, n) || put_flashinfer(out, n) || put_flashmla(out, n) || put_block_table(out, n);
  return fclose(out) != 0 || failed;
}
