/* GPU time of FlashMLA's scheduler metadata and of the block table by themselves: the time of a graph of nodes of one kernel, in
 * sequence, divided by their number, minus the same for an empty kernel (what a node costs by itself).
 *
 *   bazel-bin/profiles/flashmla_cost [cuda:0|host] [nodes in a graph] [replays] */
#include <stdlib.h>
#include <string.h>

#include "cgr/attention.h"
#include "interop/block_table/host.h"
#include "interop/flashmla/host.h"
#include "interop/formats.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"

#define MAX_REQUESTS 4096
#define MAX_PARTS 132
#define PAGE_SIZE 64
#define LONGEST 8192
#define PAGES (LONGEST / PAGE_SIZE)

static const struct lengths {
  const char *name;
  int32_t least, most; /* spread evenly; equal: all are alike */
} kinds[] = { { "none", 0, 0 }, { "1 .. 256", 1, 256 }, { "4096", 4096, 4096 }, { "1 .. 8192", 1, LONGEST } };

/* Arrays of the device. */
typedef struct arrays {
  int32_t *seq_lens, *rows, *starts, *table, *out;
  size_t out_bytes;
} arrays;

static void *take(cgr_device *dev, size_t bytes) {
  void *memory = NULL;
  bench_check(cgr_memory_alloc(dev, bytes, &memory), "cgr_memory_alloc");
  return memory;
}

static void put(const bench_nodes *b, int32_t *to, const int32_t *from, size_t count) {
  bench_check(cgr_copy(b->dev, to, from, count * sizeof *from, b->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(b->dev, b->stream), "cgr_copy");
}

static void open_arrays(const bench_nodes *b, arrays *a) {
  int32_t *words = calloc((size_t)MAX_REQUESTS * PAGES + 1, sizeof *words);
  a->seq_lens = take(b->dev, MAX_REQUESTS * sizeof(int32_t));
  a->rows = take(b->dev, MAX_REQUESTS * sizeof(int32_t));
  a->starts = take(b->dev, (MAX_REQUESTS + 1) * sizeof(int32_t));
  a->table = take(b->dev, (size_t)MAX_REQUESTS * PAGES * sizeof(int32_t));
  a->out_bytes = ((size_t)MAX_REQUESTS * (PAGES + 8) + MAX_PARTS * 8) * sizeof(int32_t);
  a->out = take(b->dev, a->out_bytes);
  for (int32_t i = 0; i < MAX_REQUESTS * PAGES; i++)
    words[i] = i;
  put(b, a->rows, words, MAX_REQUESTS);
  put(b, a->starts, words, MAX_REQUESTS + 1);
  put(b, a->table, words, (size_t)MAX_REQUESTS * PAGES);
  free(words);
}

static void close_arrays(const bench_nodes *b, const arrays *a) {
  int32_t *const all[] = { a->seq_lens, a->rows, a->starts, a->table, a->out };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    bench_check(cgr_memory_free(b->dev, all[i]), "cgr_memory_free");
}

static void put_lengths(const bench_nodes *b, const arrays *a, const struct lengths *kind) {
  int32_t lens[MAX_REQUESTS];
  for (int32_t i = 0; i < MAX_REQUESTS; i++)
    lens[i] = kind->least + i * 2663 % (kind->most - kind->least + 1);
  put(b, a->seq_lens, lens, MAX_REQUESTS);
}

static double flashmla_us(const bench_nodes *b, const arrays *a, int32_t requests, int32_t parts) {
  cgr_flashmla_input input = CGR_FLASHMLA_INPUT_INIT;
  cgr__flashmla_args args = { .metadata = a->out };
  input.num_requests = requests;
  input.num_parts = parts;
  input.seq_lens = a->seq_lens;
  bench_check(cgr__flashmla_read_key("flashmla_cost", &input, &args.c, &args.lens), "the input");
  return bench_node_us(b, &cgr__kernel_flashmla, &args);
}

static double block_table_us(const bench_nodes *b, const arrays *a, int32_t requests) {
  cgr_block_table_input input = CGR_BLOCK_TABLE_INPUT_INIT, read;
  cgr__block_table_args args = { .memory = a->out };
  input.num_requests = requests;
  input.num_rows = MAX_REQUESTS;
  input.query_len = 1;
  input.max_seq_len = LONGEST;
  input.max_pages = PAGES;
  input.page_size = PAGE_SIZE;
  input.kv_layout = CGR_LAYOUT_HND;
  input.num_pages = MAX_REQUESTS * PAGES;
  input.page_table_stride = PAGES;
  input.page_table = a->table;
  input.rows = a->rows;
  input.seq_lens = a->seq_lens;
  input.query_start_loc = a->starts;
  bench_check(cgr__block_table_read_input("flashmla_cost", "input", &input, &read), "the input");
  cgr__block_table_task_of(&read, &args.task);
  return bench_node_us(b, &cgr__kernel_block_table, &args);
}

int main(int argc, char **argv) {
  static const int32_t counts[] = { 1, 8, 64, 256, 1024, 4096 };
  bench_nodes b = bench_read_nodes(argc, argv);
  arrays a;
  bench_check(cgr_device_open(argc > 1 ? argv[1] : NULL, NULL, &b.dev), "cgr_device_open");
  bench_check(cgr_stream_create(b.dev, &b.stream), "cgr_stream_create");
  open_arrays(&b, &a);
  bench_print_head(stdout, b.dev, "profiles/flashmla_cost");
  double empty = bench_node_us(&b, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n\n", empty);
  printf("| requests | lengths | FlashMLA, 132 parts | FlashMLA, 66 parts | block table, %d pages | target of FlashMLA |\n",
         PAGES);
  printf("|---:|---|---:|---:|---:|---:|\n");
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
    put_lengths(&b, &a, &kinds[k]);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
      printf("| %d | %s | %.2f |", counts[i], kinds[k].name, flashmla_us(&b, &a, counts[i], MAX_PARTS) - empty);
      printf(" %.2f |", flashmla_us(&b, &a, counts[i], MAX_PARTS / 2) - empty);
      printf(" %.2f | %s |\n", block_table_us(&b, &a, counts[i]) - empty, counts[i] <= 1024 ? "4" : "");
    }
  }
  close_arrays(&b, &a);
  bench_check(cgr_stream_destroy(b.dev, b.stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(b.dev), "cgr_device_close");
  return 0;
}
