/* One attention layer over decodes and a chunk of a prompt: how much faster it is when the decode section leaves parts to the
 * prefill queue (planners/attention/plan.h, A6a). 32 query heads, 8 KV heads, head dim 128, bf16, pages of 16 tokens, shuffled;
 * attention alone, as in profiles/attention_cost, which also has the floor.
 *
 *   bazel-bin/profiles/mixed_attention [cuda:0|host] [sweep|grid|all]
 *
 * sweep: two batches with the decode section cut into more and more parts, and how the planner's choice compares with the best.
 * grid: 8 to 256 decodes at 1k to 32k tokens, chunks of 128 to 4096 tokens at position 0 and at the decodes' length, as far as
 * the floor is 60 us to 2 ms. Serial is the plan in which all parts begin with the decode section. Busy times are modelled, not
 * measured: bytes over the streaming read's rate, and operations over 650 TFLOP/s, as a share of the measured time.
 *
 * On the host there is one small batch, to see that the program works. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/support/attention_alone.h"
#include "profiles/support/attention_shapes.h"
#include "profiles/support/read.h"

#define LEAST_FLOOR 60.0 /* us */
#define MOST_FLOOR 2000.0
#define POOL_TOKENS ((int64_t)3 << 20)

typedef struct machine {
  cgr_device *dev;
  cudaStream_t stream;
  bool is_host;
  double bandwidth; /* bytes per second */
  int64_t num_pages;
  void *cache, *q, *out;
} machine;

static bench_shape mix(int32_t decodes, int32_t length, int32_t chunk, int32_t context) {
  return (bench_shape){ .decodes = decodes,
                        .decode_len = length,
                        .prefills = 1,
                        .query_len = chunk,
                        .context = context,
                        .num_q_heads = 32,
                        .num_kv_heads = 8,
                        .head_dim = 128,
                        .dtype = CGR_DTYPE_BF16,
                        .cache_dtype = CGR_DTYPE_BF16 };
}

/* `parts` 0: as planned. */
static bench_attention_result measure(const machine *m, const bench_shape *s, int32_t parts, bool serial) {
  bench_attention b = { .dev = m->dev, .stream = m->stream, .cache = m->cache, .q = m->q, .out = m->out };
  bench_attention_set_shape(&b, s);
  b.num_pages = m->num_pages;
  b.decode_parts = parts;
  b.serial = serial;
  double nodes = 10000.0 / bench_shape_floor_us(s, m->bandwidth);
  b.nodes = m->is_host ? 2 : nodes < 4.0 ? 4 : (int32_t)nodes;
  b.replays = m->is_host ? 1 : 3;
  bench_attention_result result = bench_attention_run(&b);
  free((void *)b.query_lens);
  free((void *)b.seq_lens);
  return result;
}

/* ----------------------------------------------------------------------------------------------------------------- sweep */

static void sweep_one(const machine *m, const bench_shape *s, const char *name) {
  double floor_us = bench_shape_floor_us(s, m->bandwidth);
  bench_attention_result serial = measure(m, s, 0, true), now = measure(m, s, 0, false);
  double best = now.us;
  int32_t best_parts = now.decode_parts;
  printf("\n## %s: floor %.1f us\n\n| decode parts of %d | us | over the floor |\n|---:|---:|---:|\n", name, floor_us,
         now.num_parts);
  printf("| serial | %.1f | %.2f |\n", serial.us, serial.us / floor_us);
  for (int32_t parts = 2; parts <= now.num_parts; parts += parts < 24 ? 1 : 3) {
    double us = measure(m, s, parts, false).us;
    printf("| %d | %.1f | %.2f |\n", parts, us, us / floor_us);
    best_parts = us < best ? parts : best_parts;
    best = us < best ? us : best;
  }
  printf("\nPlanned: %d parts, %.1f us, %.2f of the floor; %.3f of the best, which has %d.\n", now.decode_parts, now.us,
         now.us / floor_us, now.us / best, best_parts);
  fflush(stdout);
}

static void print_sweep(const machine *m) {
  bench_shape first = mix(64, 4096, 2048, 0), second = mix(32, 8192, 512, 8192);
  sweep_one(m, &first, "64 decodes at 4k and a chunk of 2048");
  sweep_one(m, &second, "32 decodes at 8k and a chunk of 512 at 8k");
}

/* ------------------------------------------------------------------------------------------------------------------ grid */

typedef struct sums {
  double logs, worst;
  int32_t count;
} sums;

/* Modelled, in percent of the time: the memory reads, the tensor cores multiply, and the least share in which both do. */
typedef struct busy {
  double memory, products, both;
} busy;

static busy busy_of(const machine *m, const bench_shape *s, double us) {
  busy b = { 1e8 * bench_shape_bytes(s) / m->bandwidth / us, 1e8 * bench_shape_flops(s) / BENCH_PEAK_FLOPS / us, 0.0 };
  b.both = fmax(0.0, b.memory + b.products - 100.0);
  return b;
}

static void grid_one(const machine *m, const bench_shape *s, sums *all) {
  double floor_us = bench_shape_floor_us(s, m->bandwidth);
  if (!m->is_host && (floor_us < LEAST_FLOOR || floor_us > MOST_FLOOR))
    return;
  bench_attention_result serial = measure(m, s, 0, true), now = measure(m, s, 0, false);
  double ratio = now.us / serial.us;
  const busy part = busy_of(m, s, now.us);
  printf("| %d | %d | %d | %d | %.1f | %d | %.1f | %.1f | %.2f | %.2f | %.0f%% | %.0f%% | %.0f%% | %.3f%% |\n", s->decodes,
         s->decode_len, s->query_len, s->context, floor_us, now.decode_parts, serial.us, now.us, now.us / floor_us, ratio,
         part.memory, part.products, part.both, 100.0 * fmax(serial.error.out, now.error.out));
  fflush(stdout);
  all->logs += log(ratio);
  all->worst = ratio > all->worst ? ratio : all->worst;
  all->count++;
}

static void print_grid(const machine *m) {
  static const int32_t decodes[] = { 8, 32, 64, 256 }, contexts[] = { 1024, 4096, 8192, 32768 };
  static const int32_t chunks[] = { 128, 512, 2048, 4096 };
  sums all = { 0.0, 0.0, 0 };
  printf("\n## Decodes with a chunk\n\n| decodes | context | chunk | at | floor us | parts | serial us | now us | over the floor "
         "| over serial | memory busy | tensor cores busy | both at least | error |\n"
         "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < 128 && !m->is_host; i++) {
    int32_t context = contexts[i / 8 % 4];
    bench_shape s = mix(decodes[i / 32], context, chunks[i / 2 % 4], i % 2 == 0 ? 0 : context);
    if (bench_shape_pages(&s, 0) < m->num_pages - 2)
      grid_one(m, &s, &all);
  }
  bench_shape small = mix(4, 256, 128, 0);
  if (m->is_host)
    grid_one(m, &small, &all);
  printf("\nGeometric mean of now over serial: %.3f; the largest: %.3f (%d batches).\n", exp(all.logs / all.count), all.worst,
         all.count);
}

static void open_machine(machine *m, const char *device) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_open(device, NULL, &m->dev), "cgr_device_open");
  bench_check(cgr_stream_create(m->dev, &m->stream), "cgr_stream_create");
  bench_check(cgr_device_get_info(m->dev, &info), "cgr_device_get_info");
  m->is_host = info.kind == CGR_DEVICE_KIND_HOST;
  m->bandwidth = m->is_host ? BENCH_PEERS_BANDWIDTH : bench_read_bandwidth(m->dev, m->stream);
  m->num_pages = m->is_host ? 1024 : POOL_TOKENS / BENCH_PAGE_SIZE;
  m->cache = bench_make_tensor(m->dev, m->stream, CGR_DTYPE_BF16, (size_t)m->num_pages * BENCH_PAGE_SIZE * 2 * 8 * 128);
  m->q = bench_make_tensor(m->dev, m->stream, CGR_DTYPE_BF16, (size_t)4608 * 32 * 128);
  m->out = bench_make_tensor(m->dev, m->stream, CGR_DTYPE_BF16, (size_t)4608 * 32 * 128);
}

int main(int argc, char **argv) {
  const char *what = argc > 2 ? argv[2] : "all";
  machine m;
  bool all = strcmp(what, "all") == 0, sweep = all || strcmp(what, "sweep") == 0, grid = all || strcmp(what, "grid") == 0;
  if (!sweep && !grid)
    bench_fail("usage: mixed_attention [cuda:0|host] [sweep|grid|all]");
  open_machine(&m, argc > 1 ? argv[1] : NULL);
  bench_print_head(stdout, m.dev, "profiles/mixed_attention");
  if (!m.is_host)
    printf("# streaming read: %.2f TB/s\n", m.bandwidth * 1e-12);
  if (sweep && !m.is_host)
    print_sweep(&m);
  if (grid)
    print_grid(&m);
  bench_close_device(m.dev, m.stream, (void *[]){ m.cache, m.q, m.out }, 3);
  return 0;
}
