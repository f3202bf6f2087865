/* Time of one attention layer, three ways, beside its floor: the KV bytes that must be read over the bandwidth of a plain
 * streaming read in the same run, or the floating-point operations over 650 TFLOP/s, whichever is longer. A run on an H200 whose
 * streaming read is below 4.4 TB/s is void, and says so.
 *
 *   bazel-bin/profiles/attention_cost [cuda:0|host] [case, a part of its name]
 *
 * 32 query heads, 8 KV heads, head dim 128, bf16, page size 16, shuffled pages.
 *
 * In steps: append and attention inside steps of the runtime. Each step has up to 16 layers, each with a KV pool of its own as
 * far as memory allows, so that a repeated step does not find its KV in L2; steps run back to back, prepared ahead, and the time
 * of a step is divided by its layers. Prologue, planner and epilogue are in it. Every step is a replay of a graph of its size.
 *
 * Alone: the attention kernel by itself, many nodes of the same layer in a graph, as other libraries' kernels are usually
 * measured (profiles/support/attention_alone.h). Less than about 50 MB of KV stays in L2 from node to node.
 *
 * Cold: the same, but each node reads pages that those before it have not read, as far as the pool goes.
 *
 * On the host only short cases run, unless one is named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/support/attention_alone.h"
#include "profiles/support/read.h"

#define MAX_LAYERS 16
#define PAGE_SIZE 16
#define POOL_BUDGET ((int64_t)90 << 30)
#define KV_BYTES_PER_TOKEN 4096
#define HEADS 32
#define KV_HEADS 8
#define DIM 128
#define VOID_BELOW 4.4e12  /* bytes per second of an H200 */
#define HOST_FLOOR_US 60.0 /* of the longest case that runs on the host unnamed */

typedef struct shape {
  const char *name;
  int32_t decodes, decode_len;          /* decode requests and their KV length with the new token; -1: log-normal lengths */
  int32_t prefills, query_len, context; /* chunks of query_len tokens after `context` tokens */
  int32_t empty;                        /* requests without new tokens, after the others */
  int32_t steps;
} shape;

static const shape shapes[] = {
  { "decode bs1 len1k", 1, 1024, 0, 0, 0, 0, 60 },
  { "decode bs1 len8k", 1, 8192, 0, 0, 0, 0, 60 },
  { "decode bs1 len32k", 1, 32768, 0, 0, 0, 0, 60 },
  { "decode bs1 len8k, beside 4095 empty requests", 1, 8192, 0, 0, 0, 4095, 60 },
  { "decode bs8 len1k", 8, 1024, 0, 0, 0, 0, 60 },
  { "decode bs8 len8k", 8, 8192, 0, 0, 0, 0, 60 },
  { "decode bs8 len32k", 8, 32768, 0, 0, 0, 0, 30 },
  { "decode bs64 len1k", 64, 1024, 0, 0, 0, 0, 60 },
  { "decode bs64 len8k", 64, 8192, 0, 0, 0, 0, 30 },
  { "decode bs64 len32k", 64, 32768, 0, 0, 0, 0, 12 },
  { "decode bs256 len1k", 256, 1024, 0, 0, 0, 0, 30 },
  { "decode bs256 len8k", 256, 8192, 0, 0, 0, 0, 12 },
  { "decode bs256 len32k", 256, 32768, 0, 0, 0, 0, 6 },
  { "decode bs128 skewed (log-normal)", 128, -1, 0, 0, 0, 0, 30 },
  { "spec decode, 4 queries each, bs64 len4k", 0, 0, 64, 4, 4092, 0, 30 },
  { "mixed: 64 decodes (4k) + a 2048-token prefill", 64, 4096, 1, 2048, 0, 0, 12 },
  { "mixed: 32 decodes (8k) + a 512-token chunk at 8k", 32, 8192, 1, 512, 8192, 0, 12 },
  { "prefill 4096 (causal)", 0, 0, 1, 4096, 0, 0, 12 },
};

static int32_t decode_length(const shape *s, int32_t i) {
  if (s->decode_len >= 0)
    return s->decode_len;
  /* Quantiles of a log-normal distribution with median 1200 and sigma 1.1, in a fixed shuffled order. */
  double u = ((double)(i * 37 % 128) + 0.5) / 128.0;
  double z = 0.0, low = -6.0, high = 6.0;
  for (int k = 0; k < 60; k++) {
    z = 0.5 * (low + high);
    *(0.5 * erfc(-z / sqrt(2.0)) < u ? &low : &high) = z;
  }
  double length = 1200.0 * exp(1.1 * z);
  return length < 16.0 ? 16 : length > 32000.0 ? 32000 : (int32_t)length;
}

static double bandwidth = 4.56e12; /* bytes per second; the host goes by a GPU's */

static double floor_us(const shape *s) {
  double tokens = 0.0, flops = 0.0;
  for (int32_t i = 0; i < s->decodes; i++) {
    tokens += decode_length(s, i);
    flops += 4.0 * HEADS * DIM * decode_length(s, i);
  }
  for (int32_t i = 0; i < s->prefills; i++) {
    double q = s->query_len;
    tokens += s->context + q;
    flops += 4.0 * HEADS * DIM * (q * s->context + q * (q + 1.0) / 2.0);
  }
  double bytes_us = tokens * KV_BYTES_PER_TOKEN / (bandwidth * 1e-6), flops_us = flops / 650e6;
  return bytes_us > flops_us ? bytes_us : flops_us;
}

static int32_t num_requests(const shape *s) { return s->decodes + s->prefills + s->empty; }

static int64_t pages_needed(const shape *s) {
  int64_t pages = 2;
  for (int32_t i = 0; i < s->decodes; i++)
    pages += (decode_length(s, i) + s->steps * 2 + 64) / 16 + 1;
  return pages + (int64_t)s->prefills * ((s->context + s->query_len) / 16 + 1);
}

/* Rows with their pages: decodes, prefills, empty ones. */
static void open_rows(bench_engine *e, const shape *s, int32_t *query_lens) {
  int32_t *all = e->rows;
  for (int32_t i = 0; i < s->decodes + s->prefills; i++, e->rows++) {
    int decode = i < s->decodes;
    int32_t length = decode ? decode_length(s, i) - 1 : s->context;
    query_lens[i] = decode ? 1 : s->query_len;
    bench_open_rows(e, 1, length, decode ? length + s->steps * 2 + 64 : s->context + s->query_len);
  }
  bench_open_rows(e, s->empty, 0, 0);
  e->rows = all;
}

static void reset_prefills(bench_engine *e, const shape *s) {
  for (int32_t i = 0; i < s->prefills; i++)
    bench_check(cgr_request_set_length(e->rt, e->rows[s->decodes + i], s->context), "cgr_request_set_length");
}

/* Steps back to back; the ring is the only thing that holds the host back. */
static double run_steps(bench_engine *e, const shape *s, cgr_batch *batch, int32_t steps) {
  uint64_t last = 0;
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_stream_synchronize");
  double begin = bench_now_us();
  for (int32_t i = 0; i < steps; i++) {
    cgr_step step = CGR_STEP_INIT;
    cgr_status status;
    reset_prefills(e, s);
    while ((status = cgr_step_prepare(e->rt, batch, &step)) == CGR_ERROR_BUSY)
      bench_check(cgr_step_wait(e->rt, 0, last - 2, -1, NULL), "cgr_step_wait");
    bench_check(status, "cgr_step_prepare");
    bench_check(cgr_step_launch(e->rt, &step, e->stream), "cgr_step_launch");
    last = step.seq;
  }
  bench_check(cgr_step_wait(e->rt, 0, last, -1, NULL), "cgr_step_wait");
  return bench_now_us() - begin;
}

/* The attention kernel by itself over all layers' pools, which lie one after the other, in graphs of about 20 ms. */
static double run_alone(bench_engine *e, const shape *s, const int32_t *query_lens, bool cold) {
  int32_t count = num_requests(s), live = s->decodes + s->prefills, nodes = (int32_t)(20000.0 / floor_us(s));
  int32_t *seq_lens = malloc((size_t)count * sizeof *seq_lens);
  for (int32_t i = 0; i < count; i++)
    seq_lens[i] = i < s->decodes ? decode_length(s, i) : i < live ? s->context + s->query_len : 0;
  bench_attention b = { .dev = e->dev, .stream = e->stream, .cache = e->cache, .q = e->q, .out = e->out };
  b.num_q_heads = HEADS;
  b.num_kv_heads = KV_HEADS;
  b.head_dim = DIM;
  b.dtype = CGR_DTYPE_BF16;
  b.page_size = PAGE_SIZE;
  b.num_pages = e->num_pages * (cold ? e->num_layers : 1);
  b.cold = cold;
  b.num_requests = count;
  b.query_lens = query_lens;
  b.seq_lens = seq_lens;
  b.nodes = e->is_host ? 2 : nodes < 4 ? 4 : nodes > 100 ? 100 : nodes;
  b.replays = e->is_host ? 1 : 20;
  double us = bench_attention_run(&b).us;
  free(seq_lens);
  return us;
}

/* From here on the floor goes by what this machine reads. */
static void measure_bandwidth(bench_engine *e) {
  if (e->is_host)
    return;
  bandwidth = bench_read_bandwidth(e->dev, e->stream);
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_get_info(e->dev, &info), "cgr_device_get_info");
  bool is_void = strstr(info.name, "H200") && bandwidth < VOID_BELOW;
  printf("# streaming read: %.2f TB/s%s\n", bandwidth * 1e-12, is_void ? ": void, expected 4.4 or more" : "");
}

static void run_case(const char *device, bool is_host, const shape *s, int head) {
  int32_t count = num_requests(s), num_tokens = s->decodes + s->prefills * s->query_len;
  int64_t pool_bytes = pages_needed(s) * 16 * KV_BYTES_PER_TOKEN;
  int64_t fit = POOL_BUDGET / pool_bytes;
  int32_t most = is_host ? 1 : MAX_LAYERS, layers = fit < most ? (fit < 1 ? 1 : (int32_t)fit) : most;
  int32_t steps = is_host ? 2 : s->steps;
  int32_t decode_bucket = s->decodes > 0 ? s->decodes : 1;
  cgr_bucket bucket = { num_tokens, count };
  int64_t max_seq_len = (pages_needed(s) - 2) * 16;
  bench_options o = { .device = device, .num_layers = layers, .num_q_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = DIM };
  o.page_size = PAGE_SIZE;
  o.max_requests = count;
  o.max_tokens = num_tokens > count ? num_tokens : count;
  o.max_seq_len = max_seq_len < 40960 ? (int32_t)max_seq_len : 40960;
  o.num_pages = pages_needed(s);
  o.buckets = &decode_bucket;
  o.num_buckets = 1;
  o.mode = count > s->decodes ? CGR_MODE_FULL : CGR_MODE_FULL_DECODE_ONLY;
  o.mixed = &bucket;
  o.num_mixed = 1;
  bench_engine engine;
  bench_open(&engine, &o);
  if (head) {
    bench_print_head(stdout, engine.dev, "profiles/attention_cost");
    measure_bandwidth(&engine);
    printf("\n| case | layers | floor us | in steps: us per layer | over the floor | alone us | over the floor | cold us |\n"
           "|---|---:|---:|---:|---:|---:|---:|---:|\n");
  }
  int32_t *query_lens = calloc((size_t)count, sizeof *query_lens), *tokens = calloc((size_t)num_tokens, sizeof *tokens);
  open_rows(&engine, s, query_lens);
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = count;
  batch.rows = engine.rows;
  batch.query_lens = query_lens;
  batch.tokens = tokens;
  run_steps(&engine, s, &batch, steps / 3 + 1);
  double us = run_steps(&engine, s, &batch, steps) / steps / layers, alone = run_alone(&engine, s, query_lens, false);
  printf("| %s | %d | %.1f | %.1f | %.2fx | %.1f | %.2fx | %.1f |\n", s->name, layers, floor_us(s), us, us / floor_us(s), alone,
         alone / floor_us(s), run_alone(&engine, s, query_lens, true));
  fflush(stdout);
  free(query_lens);
  free(tokens);
  bench_close(&engine);
}

static bool find_out_host(const char *device) {
  cgr_device *dev;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_open(device, NULL, &dev), "cgr_device_open");
  bench_check(cgr_device_get_info(dev, &info), "cgr_device_get_info");
  bench_check(cgr_device_close(dev), "cgr_device_close");
  return info.kind == CGR_DEVICE_KIND_HOST;
}

int main(int argc, char **argv) {
  int head = 1;
  const char *device = argc > 1 ? argv[1] : NULL;
  bool is_host = find_out_host(device);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    if (argc > 2 ? !strstr(shapes[i].name, argv[2]) : is_host && floor_us(&shapes[i]) > HOST_FLOOR_US)
      continue;
    run_case(device, is_host, &shapes[i], head);
    head = 0;
  }
  return 0;
}
