/* What a FULL decode step costs the host, prepare and launch together, beside the bare launch of the same executable graph: for
 * batches of 1 to 1024 requests that do not change, while 1/16 of the rows append a page, and while one request leaves and
 * another comes (close, open, 40 pages) in every step.
 *
 *   bazel-bin/profiles/step_cost [cuda:0|host] [steps in a block] [blocks]
 *
 * Both sides run in turn, a block of one and a block of the other, in one process; a fifth as many blocks for batches that
 * change. Reported: the median over all steps, and the median of the blocks' 99th percentiles. The ratio is the median over the
 * pairs of blocks, so that what else runs on the machine meets both sides. The graph has 160 layers of append and attention: 323
 * kernel nodes. Every step is waited for outside of the measured time, so that neither the ring nor the driver's queue pushes
 * back. */
#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"
#include "profiles/support/series.h"
#include "runtime/runtime.h"

#define LAYERS 160
#define PAGES_OF_A_NEW_REQUEST 40
#define WARMUP 20

typedef enum load { UNCHANGED, APPENDING, CHURNING, NUM_LOADS } load;

static const char *const load_names[] = { "unchanged", "1/16 append a page", "one leaves, one comes" };

typedef struct run {
  bench_engine *engine;
  int32_t requests, bucket; /* bucket: index of the graph */
  int32_t steps, blocks;    /* of a block; blocks of each side */
  load load;
  uint64_t bytes; /* staged by the last step */
} run;

/* ------------------------------------------------------------------------------------------------------------- cgr's side */

/* One of every 16 rows gets a page: it replaces the row's last page, which travels like a new one. */
static void append_pages(run *r, int32_t step) {
  bench_engine *e = r->engine;
  for (int32_t i = step % 16; i < r->requests; i += 16) {
    int32_t first, end, page = bench_take_page(e);
    bench_check(cgr_request_get_pages(e->rt, e->rows[i], 0, &first, &end), "cgr_request_get_pages");
    while (cgr_request_set_pages(e->rt, e->rows[i], 0, end - 1, &page, 1) != CGR_OK) /* the row has that page already */
      page = bench_take_page(e);
  }
}

/* The request that has been there longest leaves, and a new one with 16 tokens in the cache takes its place in the batch. Its
 * first token comes from the host. */
static void replace_request(run *r, int32_t step, int32_t *tokens) {
  bench_engine *e = r->engine;
  int32_t i = step % r->requests, pages[PAGES_OF_A_NEW_REQUEST];
  for (int32_t p = 0; p < PAGES_OF_A_NEW_REQUEST; p++)
    pages[p] = bench_take_page(e);
  bench_check(cgr_request_close(e->rt, e->rows[i]), "cgr_request_close");
  bench_check(cgr_request_open(e->rt, (uint64_t)step, &e->rows[i]), "cgr_request_open");
  bench_check(cgr_request_set_pages(e->rt, e->rows[i], 0, 0, pages, PAGES_OF_A_NEW_REQUEST), "cgr_request_set_pages");
  bench_check(cgr_request_set_length(e->rt, e->rows[i], 16), "cgr_request_set_length");
  tokens[i] = 1;
}

static double one_step(run *r, cgr_batch *batch, int32_t index, int32_t *tokens) {
  bench_engine *e = r->engine;
  cgr_step step = CGR_STEP_INIT;
  if (r->load == APPENDING)
    append_pages(r, index);
  double begin = bench_now_us();
  if (r->load == CHURNING)
    replace_request(r, index, tokens);
  cgr_status status = cgr_step_prepare(e->rt, batch, &step);
  if (status == CGR_OK)
    status = cgr_step_launch(e->rt, &step, e->stream);
  double end = bench_now_us();
  bench_check(status, "step");
  if (step.key.kind != CGR_KIND_FULL)
    bench_check(cgr__fail(CGR_ERROR_STATE, "the step of %d requests ran eagerly", r->requests), "step");
  bench_wait(e, step.seq);
  for (int32_t k = 0; k < r->requests; k++)
    tokens[k] = CGR_TOKEN_LAST;
  r->bytes = step.bytes_staged;
  return end - begin;
}

static void cgr_block(run *r, bench_series *s) {
  bench_engine *e = r->engine;
  int32_t *tokens = calloc((size_t)r->requests, sizeof *tokens);
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = r->requests;
  batch.rows = e->rows;
  batch.tokens = tokens; /* the rows begin anew: their first token comes from the host */
  for (int32_t i = 0; i < r->requests; i++)
    bench_check(cgr_request_set_length(e->rt, e->rows[i], 16), "cgr_request_set_length");
  bench_flush(e); /* after a bare block the runtime sends all tables again */
  for (int32_t i = -WARMUP; i < r->steps; i++) {
    double time = one_step(r, &batch, i + WARMUP, tokens);
    if (r->load != CHURNING)
      batch.tokens = NULL;
    if (i >= 0)
      bench_series_add(s, time);
  }
  bench_series_end_block(s);
  free(tokens);
}

/* ------------------------------------------------------------------------------------------------------------ bare launch */

/* The same executable graph launched by itself. Its prologue finds another step's number in the slot and runs without requests;
 * what the host pays for the launch is the same. Afterwards the runtime is told of the steps that it did not launch. */
static void bare_block(run *r, bench_series *s) {
  bench_engine *e = r->engine;
  cgr__exec *exec = e->rt->graphs.entry[r->bucket].exec;
  uint64_t completed = cgr_runtime_completed(e->rt, 0);
  for (int32_t i = -WARMUP; i < r->steps; i++) {
    double begin = bench_now_us();
    int error = e->dev->ops->exec_launch(e->dev, exec, e->stream);
    double end = bench_now_us();
    if (error)
      bench_check(CGR_ERROR_DEVICE, "bare launch");
    bench_wait(e, ++completed); /* the epilogue publishes these steps too */
    if (i >= 0)
      bench_series_add(s, end - begin);
  }
  e->rt->lane.launched = completed;
  bench_series_end_block(s);
}

static void compare(run *r) {
  double median, p99, bare, bare_p99;
  bench_series ours = bench_series_open(r->steps, r->blocks), theirs = bench_series_open(r->steps, r->blocks);
  for (int32_t b = 0; b < r->blocks; b++) {
    cgr_block(r, &ours);
    bare_block(r, &theirs);
  }
  double medians = bench_ratio(ours.medians, theirs.medians, r->blocks), p99s = bench_ratio(ours.p99s, theirs.p99s, r->blocks);
  bench_series_close(&ours, &median, &p99);
  bench_series_close(&theirs, &bare, &bare_p99);
  printf("| %d | %s | %llu | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) |\n", r->requests, load_names[r->load],
         (unsigned long long)r->bytes, median, p99, bare, bare_p99, medians, p99s);
  fflush(stdout);
}

/* ---------------------------------------------------------------------------------------------------------------- tables */

static void step_table(const char *device, int32_t steps, int32_t blocks) {
  static const int32_t buckets[] = { 1, 8, 64, 256, 1024 };
  const int32_t num_buckets = (int32_t)(sizeof buckets / sizeof buckets[0]);
  bench_engine engine;
  int32_t max_seq_len = (16 + WARMUP + steps + 16 * PAGES_OF_A_NEW_REQUEST) / 16 * 16;
  bench_options o = { .device = device, .num_layers = LAYERS, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  o.page_size = 16;
  o.max_requests = o.max_tokens = 1024;
  o.max_seq_len = max_seq_len;
  o.num_pages = 1024;
  o.buckets = buckets;
  o.num_buckets = num_buckets;
  bench_open(&engine, &o);
  bench_print_head(stdout, engine.dev, "profiles/step_cost");
  printf("# blocks: %d of %d steps on each side, in turn\n", blocks, steps);
  printf("\n## Host time of a FULL decode step, microseconds: median (p99)\n"
         "| requests | batch | bytes staged | prepare + launch | bare launch | ratio |\n|---:|---|---:|---:|---:|---:|\n");
  for (int32_t b = 0; b < num_buckets; b++)
    for (int l = 0; l < NUM_LOADS; l++) {
      run r = { &engine, buckets[b], b, steps, l == UNCHANGED || blocks < 5 ? blocks : blocks / 5, (load)l, 0 };
      bench_open_rows(&engine, buckets[b], 16, max_seq_len);
      compare(&r);
      bench_close_rows(&engine, buckets[b]);
    }
  bench_close(&engine);
}

int main(int argc, char **argv) {
  const bench_blocks b = bench_read_blocks(argc, argv);
  step_table(b.device, b.steps, b.blocks);
  return 0;
}
