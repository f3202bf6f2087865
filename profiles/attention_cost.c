/* Time of one attention layer, four ways, next to its floor: the KV bytes that must be read, divided by the bandwidth of a
 * plain streaming read in the same run, or the floating-point operations divided by 650 TFLOP/s, whichever is longer. A run on an
 * H200 whose streaming read is below 4.4 TB/s is void, and says so.
 *
 *   bazel-bin/profiles/attention_cost [cuda:0|host] [case, a part of its name, or several: 'bs8|mixed']      --help names the
 * cases
 *
 * The first table: 32 query heads, 8 KV heads, head dim 128, bf16. The second, of decode: other head dims, other numbers of query
 * heads to a KV head (GQA), fp16; all else is as in the first. Page size 16, shuffled pages.
 *
 * Alone: the attention kernel by itself, many nodes of the same layer in a graph, as other libraries' kernels are usually
 * measured (profiles/support/attention_alone.h). Less than about 50 MB of KV stays in L2 from node to node. GB/s are of K and V,
 * TFLOP/s of both products where the mask lets tokens through.
 *
 * Cold: the same, but each node reads pages that the nodes before it have not read, as long as the pool lasts.
 *
 * With append: as alone, but before each attention a kernel appends K and V of the new tokens.
 *
 * In steps: append and attention inside steps of the runtime. Each step has up to 16 layers, each with a KV pool of its own as
 * far as memory allows, so that a repeated step does not find its KV in L2; steps run back to back, prepared ahead, and the time
 * of a step is divided by its layers. Prologue, planner and epilogue are in it. Every step is a replay of a graph of its size.
 *
 * Target: the most that alone should take (profiles/support/attention_shapes.h); met within 1%. Error and lse error: the
 * largest of the three graphs against the reference in fp64, of a few heads of each; relative over a head, and absolute.
 *
 * On the host only short cases run, unless one is named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/support/attention_alone.h"
#include "profiles/support/attention_shapes.h"
#include "profiles/support/read.h"

#define MAX_LAYERS 16
#define POOL_BUDGET ((int64_t)90 << 30) /* or what is free, less an eighth for all the rest */
#define OTHER_BUDGET ((int64_t)8 << 30)
#define VOID_BELOW 4.4e12  /* bytes per second of an H200 */
#define MOST_ON_HOST 1.1e9 /* operations of the longest case that runs on the host unnamed */

/* What attention works on when it is alone: all layers' pools, which are one after the other. */
typedef struct tensors {
  cgr_device *dev;
  cudaStream_t stream;
  bool is_host;
  int64_t num_pages, all_pages; /* of one layer, of all */
  void *cache, *q, *k, *v, *out;
} tensors;

typedef struct times {
  double alone, cold, with_append; /* us */
  bench_attention_error error;     /* the largest of the three */
} times;

/* What all cases have in common. */
typedef struct setting {
  const char *device;
  bool is_host;
  double bandwidth; /* bytes per second */
  int64_t room;     /* bytes for pools */
} setting;

/* ----------------------------------------------------------------------------------------------------------------- alone */

enum { WARM, COLD, WITH_APPEND };

/* In graphs of about 20 ms. */
static double run_alone(const tensors *m, const bench_shape *s, int kind, double floor_us, bench_attention_error *most) {
  int32_t nodes = (int32_t)(20000.0 / floor_us), longest = 1;
  bench_attention b = { .dev = m->dev, .stream = m->stream, .cache = m->cache, .q = m->q, .out = m->out };
  bench_attention_set_shape(&b, s);
  for (int32_t i = 0; i < b.num_requests; i++)
    longest = b.seq_lens[i] > longest ? b.seq_lens[i] : longest;
  b.num_pages = kind == COLD ? m->all_pages : m->num_pages;
  b.cold = kind == COLD;
  b.k = kind == WITH_APPEND ? m->k : NULL;
  b.v = kind == WITH_APPEND ? m->v : NULL;
  b.nodes = m->is_host ? 2 : nodes < 4 ? 4 : nodes > 100 ? 100 : nodes;
  b.replays = m->is_host ? 1 : kind == WARM ? 20 : 10;
  b.samples = kind != WARM ? 3 : longest < 5461 ? 12 : 65536 / longest; /* long ones take a while */
  bench_attention_result result = bench_attention_run(&b);
  most->out = fmax(most->out, result.error.out);
  most->lse = fmax(most->lse, result.error.lse);
  free((void *)b.query_lens);
  free((void *)b.seq_lens);
  return result.us;
}

/* The append changes the cache: it comes last. */
static times run_graphs(const tensors *m, const bench_shape *s, double floor_us) {
  times t = { .error = { 0.0, 0.0 } };
  t.alone = run_alone(m, s, WARM, floor_us, &t.error);
  t.cold = run_alone(m, s, COLD, floor_us, &t.error);
  t.with_append = run_alone(m, s, WITH_APPEND, floor_us, &t.error);
  return t;
}

/* -------------------------------------------------------------------------------------------------------------- in steps */

/* Rows with their pages: decodes, prefills, empty ones. */
static void open_rows(bench_engine *e, const bench_shape *s, int32_t *query_lens) {
  int32_t *all = e->rows;
  for (int32_t i = 0; i < s->decodes + s->prefills; i++, e->rows++) {
    query_lens[i] = bench_shape_query_len(s, i);
    int32_t length = bench_shape_seq_len(s, i) - query_lens[i];
    bench_open_rows(e, 1, length, i < s->decodes ? length + s->steps * 2 + 64 : length + query_lens[i]);
  }
  bench_open_rows(e, s->empty, 0, 0);
  e->rows = all;
}

static void reset_prefills(bench_engine *e, const bench_shape *s) {
  for (int32_t i = 0; i < s->prefills; i++)
    bench_check(cgr_request_set_length(e->rt, e->rows[s->decodes + i], s->context), "cgr_request_set_length");
}

/* Steps back to back; the ring is the only thing that holds the host back. */
static double launch_steps(bench_engine *e, const bench_shape *s, cgr_batch *batch, int32_t steps) {
  uint64_t last = 0;
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_stream_synchronize");
  double begin = bench_now_us();
  for (int32_t i = 0; i < steps; i++) {
    cgr_step step = CGR_STEP_INIT;
    cgr_status status;
    reset_prefills(e, s);
    while ((status = cgr_step_prepare(e->rt, batch, &step)) == CGR_ERROR_BUSY)
      bench_check(cgr_step_wait(e->rt, (cgr_mark){ 0, 0, last - 2 }, -1, NULL), "cgr_step_wait");
    bench_check(status, "cgr_step_prepare");
    bench_check(cgr_step_launch(e->rt, &step, e->stream), "cgr_step_launch");
    last = step.mark.seq;
  }
  bench_check(cgr_step_wait(e->rt, (cgr_mark){ 0, 0, last }, -1, NULL), "cgr_step_wait");
  return bench_now_us() - begin;
}

/* In microseconds, of a step. */
static double run_steps(bench_engine *e, const bench_shape *s, int32_t steps) {
  size_t count = (size_t)bench_shape_requests(s), num_tokens = (size_t)bench_shape_tokens(s);
  int32_t *query_lens = calloc(count, sizeof *query_lens), *tokens = calloc(num_tokens, sizeof *tokens);
  cgr_batch batch = CGR_BATCH_INIT;
  open_rows(e, s, query_lens);
  batch.num_requests = (int32_t)count;
  batch.rows = e->rows;
  batch.query_lens = query_lens;
  batch.tokens = tokens;
  (void)launch_steps(e, s, &batch, steps / 3 + 1);
  double us = launch_steps(e, s, &batch, steps) / steps;
  free(query_lens);
  free(tokens);
  return us;
}

/* Pages of one layer, in steps, and what they take with the two of the trash. */
static int64_t pool_pages(const bench_shape *s) { return bench_shape_pages(s, s->steps * 2 + 64); }
static int64_t pool_bytes(const bench_shape *s) { return (pool_pages(s) + 2) * (int64_t)bench_shape_page_bytes(s); }

/* With as many layers as memory allows. */
static void open_engine(bench_engine *engine, const setting *at, const bench_shape *s) {
  int32_t count = bench_shape_requests(s), num_tokens = bench_shape_tokens(s), decode_bucket = s->decodes > 0 ? s->decodes : 1;
  int64_t pages = pool_pages(s), max_seq_len = pages * BENCH_PAGE_SIZE;
  int64_t fit = at->room / pool_bytes(s), most = at->is_host ? 1 : MAX_LAYERS;
  cgr_bucket bucket = { num_tokens, count };
  bench_options o = { .device = at->device, .num_layers = (int32_t)(fit > most ? most : fit < 1 ? 1 : fit) };
  o.num_q_heads = s->num_q_heads;
  o.num_kv_heads = s->num_kv_heads;
  o.head_dim = s->head_dim;
  o.page_size = BENCH_PAGE_SIZE;
  o.max_requests = count;
  o.max_tokens = num_tokens > count ? num_tokens : count;
  o.max_seq_len = max_seq_len < 40960 ? (int32_t)max_seq_len : 40960;
  o.num_pages = pages + 2;
  o.buckets = &decode_bucket;
  o.num_buckets = 1;
  o.mode = count > s->decodes ? CGR_MODE_FULL : CGR_MODE_FULL_DECODE_ONLY;
  o.mixed = &bucket;
  o.num_mixed = 1;
  bench_open(engine, &o);
}

/* ---------------------------------------------------------------------------------------------------------------- tables */

static void print_graphs(const setting *at, const bench_shape *s, const times *t) {
  double floor_us = bench_shape_floor_us(s, at->bandwidth);
  printf("| %s | %.1f | %.1f | %.2fx | %.1f | %.2f | %.1f | %.1f |", s->name, floor_us, t->alone, t->alone / floor_us,
         bench_shape_bytes(s) / t->alone * 1e-3, bench_shape_flops(s) / t->alone * 1e-6, t->cold, t->with_append);
}

static void print_verdict(const setting *at, const bench_shape *s, const times *t) {
  double target = bench_shape_target_us(s, at->bandwidth);
  if (target > 0.0)
    printf(" %.1f | %s |", target, t->alone <= 1.01 * target ? "yes" : "no");
  else
    printf(" - | - |");
  printf(" %.3f%% | %.7f |\n", 100.0 * t->error.out, t->error.lse);
  fflush(stdout);
}

/* The first table: also in steps, on the same pools. */
static void run_first(const setting *at, const bench_shape *s) {
  int32_t steps = at->is_host ? 2 : s->steps;
  double floor_us = bench_shape_floor_us(s, at->bandwidth);
  bench_engine e;
  open_engine(&e, at, s);
  double us = run_steps(&e, s, steps) / e.num_layers;
  const tensors m = { e.dev, e.stream, e.is_host, e.num_pages, e.num_pages * e.num_layers, e.cache, e.q, e.k, e.v, e.out };
  times t = run_graphs(&m, s, floor_us);
  print_graphs(at, s, &t);
  printf(" %d | %.1f | %.2fx |", e.num_layers, us, us / floor_us);
  print_verdict(at, s, &t);
  bench_close(&e);
}

/* The second table, without a runtime; the pool is for up to 16 sets of pages. */
static void run_other(const setting *at, const bench_shape *s) {
  tensors m = { .is_host = at->is_host };
  int64_t pages = bench_shape_pages(s, 0), budget = at->room < OTHER_BUDGET ? at->room : OTHER_BUDGET;
  int64_t fit = budget / (pages * (int64_t)bench_shape_page_bytes(s));
  int64_t most = at->is_host ? 2 : MAX_LAYERS;
  size_t tokens = (size_t)bench_shape_tokens(s), head = (size_t)s->head_dim;
  m.num_pages = pages + 2;
  m.all_pages = pages * (fit > most ? most : fit < 1 ? 1 : fit) + 2;
  bench_check(cgr_device_open(at->device, NULL, &m.dev), "cgr_device_open");
  bench_check(cgr_stream_create(m.dev, &m.stream), "cgr_stream_create");
  m.cache = bench_make_tensor(m.dev, m.stream, s->cache_dtype,
                              (size_t)m.all_pages * (size_t)bench_shape_page_bytes(s) / cgr_dtype_size(s->cache_dtype));
  m.q = bench_make_tensor(m.dev, m.stream, s->dtype, tokens * (size_t)s->num_q_heads * head);
  m.k = bench_make_tensor(m.dev, m.stream, s->dtype, tokens * (size_t)s->num_kv_heads * head);
  m.v = bench_make_tensor(m.dev, m.stream, s->dtype, tokens * (size_t)s->num_kv_heads * head);
  m.out = bench_make_tensor(m.dev, m.stream, s->dtype, tokens * (size_t)s->num_q_heads * head);
  times t = run_graphs(&m, s, bench_shape_floor_us(s, at->bandwidth));
  print_graphs(at, s, &t);
  print_verdict(at, s, &t);
  bench_close_device(m.dev, m.stream, (void *[]){ m.cache, m.q, m.k, m.v, m.out }, 5);
}

static void print_columns(bool is_first) {
  printf(is_first ? "\n" : "\n## Other shapes\n\n");
  printf(
      "| case | floor us | alone us | over the floor | GB/s | TFLOP/s | cold us | with append us |%s target us | met | error | "
      "lse error |\n",
      is_first ? " layers | in steps: us per layer | over the floor |" : "");
  printf("|---|---:|---:|---:|---:|---:|---:|---:|%s---:|---|---:|---:|\n", is_first ? "---:|---:|---:|" : "");
}

static bool fits(const setting *at, const bench_shape *s) {
  if (at->is_host || pool_bytes(s) <= at->room)
    return true;
  fprintf(stderr, "attention_cost: left out: %s takes %.0f GB, %.0f are free\n", s->name, (double)pool_bytes(s) * 1e-9,
          (double)at->room * 1e-9);
  return false;
}

/* Whether one of the parts, with | between them, is in the name. */
static bool is_asked_for(const char *name, const char *parts) {
  char part[128];
  for (const char *end; *parts; parts = *end ? end + 1 : end) {
    end = parts + strcspn(parts, "|");
    snprintf(part, sizeof part, "%.*s", (int)(end - parts), parts);
    if (part[0] && strstr(name, part))
      return true;
  }
  return false;
}

/* Returns how many cases ran, or would with more memory. */
static int32_t run_list(const setting *at, int list, const char *parts) {
  bench_shape s;
  int32_t ran = 0;
  bool is_first = list == BENCH_SHAPES_FIRST;
  for (int32_t i = 0; bench_shape_get(list, i, &s); i++) {
    if (parts ? !is_asked_for(s.name, parts) : at->is_host && bench_shape_flops(&s) > MOST_ON_HOST)
      continue;
    if (ran++ == 0)
      print_columns(is_first);
    if (!fits(at, &s))
      continue;
    if (is_first)
      run_first(at, &s);
    else
      run_other(at, &s);
  }
  return ran;
}

/* Prints the head, and measures the streaming read that floors follow from. On the host the bandwidth of the peers' machine
 * stands in for it. */
static void open_setting(setting *at) {
  cgr_device *dev;
  cudaStream_t stream;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_open(at->device, NULL, &dev), "cgr_device_open");
  bench_check(cgr_stream_create(dev, &stream), "cgr_stream_create");
  bench_check(cgr_device_get_info(dev, &info), "cgr_device_get_info");
  at->is_host = info.kind == CGR_DEVICE_KIND_HOST;
  at->room = (int64_t)(info.memory_free - info.memory_free / 8);
  at->room = at->room < POOL_BUDGET ? at->room : POOL_BUDGET;
  at->bandwidth = at->is_host ? BENCH_PEERS_BANDWIDTH : bench_read_bandwidth(dev, stream);
  bench_print_head(stdout, dev, "profiles/attention_cost");
  bool is_void = strstr(info.name, "H200") && at->bandwidth < VOID_BELOW;
  if (!at->is_host)
    printf("# streaming read: %.2f TB/s%s\n", at->bandwidth * 1e-12, is_void ? ": void, expected 4.4 or more" : "");
  bench_check(cgr_stream_destroy(dev, stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(dev), "cgr_device_close");
}

static void print_names(FILE *to) {
  bench_shape s;
  fprintf(to, "usage: attention_cost [cuda:0|host] [case, a part of its name, or several: 'bs8|mixed']\ncases:\n");
  for (int list = 0; list < BENCH_SHAPE_LISTS; list++)
    for (int32_t i = 0; bench_shape_get(list, i, &s); i++)
      fprintf(to, "  %s\n", s.name);
}

int main(int argc, char **argv) {
  const char *parts = argc > 2 && argv[2][0] != '\0' ? argv[2] : NULL;
  setting at = { .device = argc > 1 ? argv[1] : NULL };
  int32_t ran = 0;
  if (argc > 3 || (argc > 1 && argv[1][0] == '-')) {
    bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
    print_names(asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  open_setting(&at);
  for (int list = 0; list < BENCH_SHAPE_LISTS; list++)
    ran += run_list(&at, list, parts);
  if (ran == 0)
    bench_fail("no case has \"%s\" in its name", parts);
  return 0;
}
