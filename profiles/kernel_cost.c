/* GPU time of each of cgr's own kernels by itself: the time of a graph of nodes of one kernel, all of the same step, divided by
 * their number, minus the same for an empty kernel (what a node costs by itself).
 *
 *   bazel-bin/profiles/kernel_cost [cuda:0|host] [nodes in a graph] [replays]
 *
 * The step is staged as usual and its ring slot committed, but the kernels run without the rest of it. The prologue comes first,
 * with its ring slot read over the bus and from the inbox; the others read what it leaves. The epilogue ends one step after
 * another, alike but for the number. There is one class of plans (planner_cost has four), and two buffers of the engine's own, 4
 * bytes of a token and 16 of a request, for `staged`; they count among the bytes. `on demand` writes kv_indices, block_table (of
 * 512 pages), and lengths and sums. */
#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"
#include "profiles/support/by_hand.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"
#include "runtime/runtime.h"

#define MAX_REQUESTS 1024
#define MAX_TOKENS 65536
#define LENGTH 256 /* of decodes, before the step */

typedef enum kernel_args { STEP_ARGS, PLANNER_ARGS, ON_DEMAND_ARGS, STAGED_ARGS } kernel_args;

typedef struct kernel {
  const cgr__kernel *kernel;
  kernel_args args;
  bool fetched; /* the inbox has the ring slot */
  bool ends;    /* the step, which is taken back before */
  const char *name;
} kernel;

/* The prologue first, what ends steps last. */
static const kernel kernels[] = {
  { &cgr__kernel_prologue, STEP_ARGS, false, false, "prologue over the bus" },
  { &cgr__kernel_prologue, STEP_ARGS, true, false, "prologue, fetched" },
  { &cgr__kernel_fetch, STEP_ARGS, false, false, "fetch" },
  { &cgr__kernel_planner, PLANNER_ARGS, false, false, "planner" },
  { &cgr__kernel_on_demand, ON_DEMAND_ARGS, false, false, "on demand" },
  { &cgr__kernel_staged, STAGED_ARGS, false, false, "staged" },
  { &cgr__kernel_epilogue, STEP_ARGS, false, true, "epilogue" },
};
#define NUM_KERNELS ((int)(sizeof kernels / sizeof kernels[0]))

typedef struct shape {
  const char *name;
  int32_t requests, query_len;
  bool sends_batch;
  int32_t append_every; /* one of so many rows gets a page; 0: none does */
} shape;

static const shape shapes[] = {
  { "1 decode, unchanged", 1, 1, false, 0 },
  { "8 decodes, unchanged", 8, 1, false, 0 },
  { "64 decodes, unchanged", 64, 1, false, 0 },
  { "256 decodes, unchanged", 256, 1, false, 0 },
  { "1024 decodes, unchanged", 1024, 1, false, 0 },
  { "1024 decodes, 1/16 append a page", 1024, 1, false, 16 },
  { "1 decode, whole batch and token", 1, 1, true, 0 },
  { "64 decodes, whole batch and tokens", 64, 1, true, 0 },
  { "1024 decodes, whole batch and tokens", 1024, 1, true, 0 },
  { "16 prefills of 512 tokens", 16, 512, true, 0 },
  { "1 prefill of 8192 tokens", 1, 8192, true, 0 },
  { "8 prefills of 8192 tokens", 8, 8192, true, 0 },
};

typedef struct run {
  bench_engine *engine;
  const shape *shape;
  int32_t *query_lens, *tokens;
  void *data; /* of tokens and of requests */
  cgr_staged staged[2];
  cgr_batch batch;
  cgr_step step;
} run;

/* ---------------------------------------------------------------------------------------------------------------- a step */

static void open_run(run *r, bench_engine *e, const shape *s) {
  memset(r, 0, sizeof *r);
  r->engine = e;
  r->shape = s;
  r->query_lens = malloc((size_t)s->requests * sizeof *r->query_lens);
  r->tokens = calloc((size_t)s->requests * (size_t)s->query_len, sizeof *r->tokens);
  r->data = calloc(MAX_TOKENS, 16);
  for (int32_t i = 0; i < s->requests; i++)
    r->query_lens[i] = s->query_len;
  bench_open_rows(e, s->requests, s->query_len > 1 ? 0 : LENGTH, s->query_len > 1 ? s->query_len : LENGTH + 2 * e->page_size);
  for (int32_t i = 0; i < 2; i++)
    r->staged[i] = (cgr_staged){ i, 0, r->data };
  r->batch = (cgr_batch)CGR_BATCH_INIT;
  r->batch.num_requests = s->requests;
  r->batch.rows = e->rows;
  r->batch.query_lens = r->query_lens;
  r->batch.tokens = r->tokens;
  r->batch.staged = r->staged;
  r->batch.num_staged = 2;
}

static void close_run(run *r) {
  bench_close_rows(r->engine, r->shape->requests);
  free(r->query_lens);
  free(r->tokens);
  free(r->data);
}

/* The step before, so that this one finds its batch and its tokens on the device. */
static void run_step_before(run *r) {
  cgr_step step = CGR_STEP_INIT;
  bench_check(cgr_step_prepare(r->engine->rt, &r->batch, &step), "cgr_step_prepare");
  bench_check(cgr_step_launch(r->engine->rt, &step, r->engine->stream), "cgr_step_launch");
  bench_check(cgr_stream_synchronize(r->engine->dev, r->engine->stream), "a step");
  r->batch.tokens = NULL;
}

static void append_pages(run *r) {
  bench_engine *e = r->engine;
  for (int32_t i = 0; r->shape->append_every > 0 && i < r->shape->requests; i += r->shape->append_every) {
    int32_t first, end, page = bench_take_page(e);
    bench_check(cgr_request_get_pages(e->rt, e->rows[i], 0, &first, &end), "cgr_request_get_pages");
    bench_check(cgr_request_set_pages(e->rt, e->rows[i], 0, end, &page, 1), "cgr_request_set_pages");
  }
}

static void commit(run *r) {
  r->step = (cgr_step)CGR_STEP_INIT;
  bench_commit(r->engine, &r->batch, &r->step);
}

/* Checks that the prologue has accepted the step: the time of a step that was refused is worth nothing. */
static void check_step(const run *r) {
  bench_engine *e = r->engine;
  const cgr__step_args *args = &e->rt->lane.args;
  cgr__step_state state;
  int32_t counts[16];
  bench_check(cgr_copy(e->dev, &state, args->state, sizeof state, e->stream), "cgr_copy");
  bench_check(cgr_copy(e->dev, counts, args->buffers.counts, sizeof counts, e->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_copy");
  if (state.error.error != CGR_GUARD_NONE || counts[CGR_COUNT_REQUESTS] != r->shape->requests)
    bench_fail("%s: the prologue found guard %d, and %d requests", r->shape->name, state.error.error, counts[CGR_COUNT_REQUESTS]);
}

/* --------------------------------------------------------------------------------------------------------------- kernels */

static double measure(const run *r, const kernel *k, const bench_nodes *b) {
  const cgr__lane *lane = &r->engine->rt->lane;
  const int32_t requests = r->shape->requests, tokens = requests * r->shape->query_len;
  cgr__step_args step = lane->args;
  cgr__planner_args planner = lane->planner_args;
  cgr__on_demand_args on_demand = lane->on_demand_args;
  cgr__staged_args staged = lane->staged_args;
  step.padded_requests = planner.padded_requests = staged.padded_requests = requests;
  step.padded_tokens = staged.padded_tokens = tokens;
  on_demand.batch.padded_requests = requests;
  const void *const args[] = {
    [STEP_ARGS] = &step, [PLANNER_ARGS] = &planner, [ON_DEMAND_ARGS] = &on_demand, [STAGED_ARGS] = &staged
  };
  return bench_node_us(b, k->kernel, args[k->args]);
}

static void measure_shape(bench_engine *e, const shape *s, const bench_nodes *b, double empty) {
  run r;
  bool taken_back = false;
  open_run(&r, e, s);
  if (!s->sends_batch)
    run_step_before(&r);
  append_pages(&r);
  commit(&r);
  printf("| %s | %llu |", s->name, (unsigned long long)r.step.bytes_staged);
  for (int k = 0; k < NUM_KERNELS; k++) {
    if (kernels[k].ends && !taken_back) {
      bench_take_back(r.engine, &r.step);
      taken_back = true;
    }
    if (kernels[k].fetched)
      bench_fill_inbox(r.engine);
    printf(" %.2f |", measure(&r, &kernels[k], b) - empty);
    if (kernels[k].kernel == &cgr__kernel_prologue)
      check_step(&r);
  }
  printf("\n");
  fflush(stdout);
  bench_count_on(e);
  close_run(&r);
}

int main(int argc, char **argv) {
  bench_nodes b = bench_read_nodes(argc, argv);
  bench_options o = { .device = argc > 1 ? argv[1] : NULL, .num_layers = 1, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  bench_engine e;
  o.page_size = 16;
  o.max_requests = MAX_REQUESTS;
  o.max_tokens = MAX_TOKENS;
  o.max_seq_len = 8192;
  o.num_pages = 8192;
  o.mode = CGR_MODE_NONE;
  o.declares = true;
  o.on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES) | CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE) |
                CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC) | CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_LENS) |
                CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_START_LOC);
  bench_open(&e, &o);
  b.dev = e.dev;
  b.stream = e.stream;
  bench_print_head(stdout, e.dev, "profiles/kernel_cost");
  double empty = bench_node_us(&b, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n\n| step | bytes staged |", empty);
  for (int k = 0; k < NUM_KERNELS; k++)
    printf(" %s |", kernels[k].name);
  printf("\n|---|---:|");
  for (int k = 0; k < NUM_KERNELS; k++)
    printf("---:|");
  printf("\n");
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    measure_shape(&e, &shapes[i], &b, empty);
  bench_close(&e);
  return 0;
}
