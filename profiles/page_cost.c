/* Host time of giving pages to many rows: one call for all of them next to a call for each, in turn in one process. Of 16 rows
 * that are open one gets a page, as in a step of decodes at page size 16. In rows `touched` of the table, the program goes
 * through 32 MB of host memory before each round.
 *
 *   bazel-bin/profiles/page_cost [cuda:0|host] [rounds in a block] [blocks] */
#include <stdlib.h>

#include "profiles/support/bench.h"
#include "profiles/support/series.h"

#define MAX_ROWS 1024
#define MAX_PAGES 256 /* of a row */
#define TOUCHED_BYTES ((size_t)32 << 20)
#define NUM_PAGES 4096

/* The arguments of a round's call, or calls. */
typedef struct pages {
  int32_t num_rows, rows[MAX_ROWS], firsts[MAX_ROWS], numbers[MAX_ROWS];
} pages;

typedef void set_function(cgr_runtime *rt, const pages *p);

static void set_at_once(cgr_runtime *rt, const pages *p) {
  bench_check(cgr_requests_set_pages(rt, 0, p->num_rows, p->rows, p->firsts, NULL, p->numbers), "cgr_requests_set_pages");
}

static void set_singly(cgr_runtime *rt, const pages *p) {
  for (int32_t i = 0; i < p->num_rows; i++)
    bench_check(cgr_request_set_pages(rt, p->rows[i], 0, p->firsts[i], &p->numbers[i], 1), "cgr_request_set_pages");
}

static void choose_pages(const bench_engine *e, int32_t requests, int32_t round, pages *p) {
  p->num_rows = 0;
  for (int32_t i = round % 16; i < requests; i += 16) {
    p->rows[p->num_rows] = e->rows[i];
    p->firsts[p->num_rows] = round / 16;
    p->numbers[p->num_rows++] = 2 + (i * 7 + round / 16) % (NUM_PAGES - 2); /* no row gets a page twice */
  }
}

/* All of them, which also empties the rows' page filters: the next block finds them as this one did. */
static void drop_pages(bench_engine *e, int32_t requests) {
  static int32_t firsts[MAX_ROWS], counts[MAX_ROWS];
  for (int32_t i = 0; i < requests; i++) {
    int32_t first, end;
    bench_check(cgr_request_get_pages(e->rt, e->rows[i], 0, &first, &end), "cgr_request_get_pages");
    firsts[i] = first;
    counts[i] = end - first;
  }
  bench_check(cgr_requests_drop_pages(e->rt, 0, requests, e->rows, firsts, counts), "cgr_requests_drop_pages");
  bench_flush(e);
}

static void measure_block(bench_engine *e, int32_t requests, set_function *set, volatile unsigned char *touched,
                          bench_series *times) {
  static pages p;
  for (int32_t round = 0; round < times->steps; round++) {
    choose_pages(e, requests, round, &p);
    for (size_t i = 0; touched && i < TOUCHED_BYTES; i += 64)
      touched[i]++;
    double begin = bench_now_us();
    set(e->rt, &p);
    bench_series_add(times, bench_now_us() - begin);
    bench_flush(e);
  }
  bench_series_end_block(times);
  drop_pages(e, requests);
}

static void compare_sides(bench_engine *e, int32_t requests, const bench_blocks *b, unsigned char *touched) {
  bench_series at_once = bench_series_open(b->steps, b->blocks), singly = bench_series_open(b->steps, b->blocks);
  for (int32_t n = 0; n < b->blocks; n++) {
    measure_block(e, requests, set_at_once, touched, &at_once);
    measure_block(e, requests, set_singly, touched, &singly);
  }
  double median, p99, singly_median, singly_p99, ratio = bench_ratio(at_once.medians, singly.medians, b->blocks);
  bench_series_close(&at_once, &median, &p99);
  bench_series_close(&singly, &singly_median, &singly_p99);
  printf("| %d | %s | %.2f (%.2f) | %.2f (%.2f) | %.2f |\n", requests / 16, touched ? "touched" : "warm", median, p99,
         singly_median, singly_p99, ratio);
  fflush(stdout);
}

/* Members of the standing batch, as in an engine: a page for one also moves its deadline. */
static void open_rows(bench_engine *e) {
  for (int32_t i = 0; i < MAX_ROWS; i++) {
    const int32_t token = 0;
    bench_check(cgr_request_open(e->rt, (uint64_t)i, &e->rows[i]), "cgr_request_open");
    bench_check(cgr_standing_add(e->rt, NULL, e->rows[i], 1, &token, 0), "cgr_standing_add");
  }
  bench_flush(e);
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

int main(int argc, char **argv) {
  const bench_blocks b = bench_read_blocks(argc, argv);
  static const int32_t buckets[] = { 1 }, requests[] = { 16, 256, MAX_ROWS };
  const bench_blocks few = { b.device, smaller(b.steps, 50), smaller(b.blocks, 10) }; /* touching takes long */
  bench_engine e;
  bench_options o = { .device = b.device, .num_layers = 1, .num_q_heads = 1, .num_kv_heads = 1, .head_dim = 64, .page_size = 16 };
  o.max_requests = o.max_tokens = MAX_ROWS;
  o.max_seq_len = 16 * MAX_PAGES;
  o.num_pages = NUM_PAGES;
  o.buckets = buckets, o.num_buckets = 1;
  if (b.steps > 16 * MAX_PAGES)
    bench_fail("%d rounds in a block, expected at most %d", b.steps, 16 * MAX_PAGES);
  unsigned char *touched = calloc(1, TOUCHED_BYTES);
  if (!touched)
    bench_fail("no memory");
  bench_open(&e, &o);
  open_rows(&e);
  bench_print_head(stdout, e.dev, "profiles/page_cost");
  printf("# blocks: %d of %d rounds on each side, in turn; touched: %d of %d\n\n| pages | caches | one call, us | a call for "
         "each, us | ratio |\n"
         "|---:|---|---:|---:|---:|\n",
         b.blocks, b.steps, few.blocks, few.steps);
  for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
    compare_sides(&e, requests[i], &b, NULL);
  for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
    compare_sides(&e, requests[i], &few, touched);
  free(touched);
  for (int32_t i = 0; i < MAX_ROWS; i++)
    bench_check(cgr_standing_remove(e.rt, NULL, e.rows[i]), "cgr_standing_remove");
  bench_close_rows(&e, MAX_ROWS);
  bench_close(&e);
  return 0;
}
