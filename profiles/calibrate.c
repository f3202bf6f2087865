/* What the planner's costs should be (kernels/registry.c): the time of the device's attention kernel over plans whose parts are
 * all alike, with head dims 64 and 128, and with a prefill queue.
 *
 *   bazel-bin/profiles/calibrate [cuda:0|host] [all|mixed]      mixed: only part 5
 *
 * All layers have 4 query heads to a KV head, bf16 and pages of 16 tokens, shuffled. A node of a graph is one launch
 * (profiles/support/attention_alone.h), and its time T the median over the graph's replays, divided by its nodes. Except where
 * it says otherwise every node reads pages of its own, more than L2 holds before they come again.
 *
 * 1. cost_tile and cost_kv. Decodes of n KV tiles each, so many that each of the G parts has t whole tiles and no tile is cut.
 *    The model is what the planner assumes:
 *        T = fixed + t * (cost_tile + n * cost_kv)
 *    and is fitted over all t and n by least squares of the relative error, (model - T) / T: the planner has to be right for
 *    short batches too. `fixed` is what a launch costs whatever the plan. The column "one more tile" is the slope between the
 *    fewest and the most tiles per part: cost_tile + n * cost_kv without the model's fixed part. A second fit leaves out n below
 *    8: there one tile's loads hide behind those of others, and the two differ as far as the model is wrong.
 *    All G parts load at once, so that cost_kv is a part's share of the memory's bandwidth, as in a step that fills the device.
 *    cost_kv is printed as for head dim 128; the planner scales it.
 * 2. snap. One KV head, n KV tiles for each part: G whole tiles, next to a decode section that begins and ends with half a tile,
 * so that every cut falls into the middle of a tile. A part's extra work is then one cut: it begins one more q tile, leaves
 * partials and merges. A cut is worth avoiding for a stretch of KV tiles that takes less time than that: snap is the time of a
 * cut, the median over n. Also the time when each tile is cut into 2, 4 and 8 splits, n KV tiles long.
 * 3. For information: q tiles of 64 lines from the prefill queue, as in prefill. All requests read the same pages, which stay in
 * L2.
 * 4. For information: a CTA that has the device to itself. Compared with cost_kv it shows how much of that is waiting for others.
 * 5. with_prefill, prefill_tile and prefill_kv, head dim 256 included: decodes in a third of the parts, each alone on its
 * multiprocessor or next to a q tile, while all other parts have q tiles, which are done first; their requests read the same
 * pages. The decodes' time over their KV tiles is with_prefill. Then there are many more q tiles than the decodes need to finish.
 * Doubling their number lengthens the launch; that time, spread over all parts, is their cost. Part 3 has them without decodes.
 *
 * The host runs the parts one after the other: there times are divided by G. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/support/attention_alone.h"

#define PAGE_SIZE 16
#define Q_PER_KV 4 /* query heads of a KV head */
#define MAX_KV_HEADS 8
#define MAX_TILES 8 /* of a part */
#define MAX_POINTS 64

typedef struct machine {
  cgr_device *dev;
  cudaStream_t stream;
  bool is_host;
  size_t pool_bytes;
  void *pool, *q, *out;
  int32_t max_kv; /* KV tiles of a part, in all */
} machine;

/* One head dim. */
typedef struct bench {
  const machine *m;
  const cgr__kernel_kind *kind;
  int32_t head_dim, num_parts, num_kv_heads;
} bench;

/* Requests of one kind, and what may come before and after them. */
typedef struct load {
  int32_t num_kv_heads, num_parts; /* num_parts 0: as many as the device holds */
  int32_t count, kv, query_len;    /* kv: KV tiles of a request */
  int32_t ends;                    /* KV tiles of one request more at the begin and of one at the end; 0: none */
  int32_t prefills, prefill_kv;    /* more requests, of one q tile and so many KV tiles each */
  int32_t decode_parts;            /* of a stripe, with a prefill queue; 0: as planned */
  bool shared_pages;
  const bench_plan_costs *costs;
} load;

static int32_t gcd(int32_t a, int32_t b) { return b == 0 ? a : gcd(b, a % b); }

/* About 4 ms of nodes, a KV tile taking about 2 us; and where their pages are to be cold, so many that they are 512 MB. */
static int32_t num_nodes(const bench_attention *a, int32_t kv_of_part, int32_t parts) {
  int64_t bytes = (int64_t)kv_of_part * parts * 64 * a->head_dim * 4, fresh = a->cold ? ((int64_t)512 << 20) / bytes : 0;
  int64_t nodes = 2000 / (kv_of_part + 4);
  nodes = nodes > 128 ? 128 : nodes < 4 ? 4 : nodes;
  nodes = nodes > fresh ? nodes : fresh;
  return nodes < 2048 ? (int32_t)nodes : 2048;
}

/* In microseconds, of one part. */
static double measure(const bench *b, const load *l, int32_t kv_of_part, bench_attention_result *result) {
  const machine *m = b->m;
  int32_t decodes = l->count + (l->ends > 0 ? 2 : 0), count = decodes + l->prefills;
  int32_t parts = l->num_parts > 0 ? l->num_parts : b->num_parts;
  int32_t *query_lens = malloc((size_t)count * sizeof *query_lens), *seq_lens = malloc((size_t)count * sizeof *seq_lens);
  for (int32_t i = 0; i < count; i++) {
    bool is_end = l->ends > 0 && (i == 0 || i == decodes - 1);
    query_lens[i] = i < decodes ? l->query_len : b->kind->plan.tile_lines / Q_PER_KV;
    seq_lens[i] = b->kind->plan.tile_kv * (i >= decodes ? l->prefill_kv : is_end ? l->ends : l->kv);
  }
  bench_attention a = { .dev = m->dev, .stream = m->stream, .cache = m->pool, .q = m->q, .out = m->out };
  a.num_q_heads = Q_PER_KV * l->num_kv_heads;
  a.num_kv_heads = l->num_kv_heads;
  a.head_dim = b->head_dim;
  a.dtype = a.cache_dtype = CGR_DTYPE_BF16;
  a.page_size = PAGE_SIZE;
  a.num_pages = (int64_t)(m->pool_bytes / ((size_t)4 * PAGE_SIZE * (size_t)l->num_kv_heads * (size_t)b->head_dim));
  a.num_requests = count;
  a.query_lens = query_lens;
  a.seq_lens = seq_lens;
  a.num_shared = l->shared_pages ? count : l->prefills;
  a.cold = !l->shared_pages;
  a.num_parts = l->num_parts;
  a.costs = l->costs;
  a.decode_parts = l->decode_parts;
  a.nodes = m->is_host ? 2 : num_nodes(&a, kv_of_part, parts);
  a.replays = m->is_host ? 3 : 7;
  *result = bench_attention_run(&a);
  free(query_lens);
  free(seq_lens);
  return result->us / (m->is_host ? parts : 1);
}

static void expect(int32_t got, int32_t want, const char *what) {
  if (got != want)
    bench_fail("the plan has %d %s, expected %d", got, what, want);
}

/* --------------------------------------------------------------------------------------------------------------- the fit */

typedef struct point {
  int32_t tiles, kv; /* t and n */
  double us;
} point;

typedef struct fit {
  double fixed, tile, kv; /* us */
  double worst;           /* the largest relative error */
} fit;

static double model(const fit *f, int32_t tiles, int32_t kv) { return f->fixed + tiles * (f->tile + kv * f->kv); }

/* Solves the normal equations, a row being its three coefficients and the right side. */
static void solve(double rows[3][4], double *x) {
  for (int i = 0; i < 3; i++) {
    int pivot = i;
    for (int r = i + 1; r < 3; r++)
      pivot = fabs(rows[r][i]) > fabs(rows[pivot][i]) ? r : pivot;
    for (int c = 0; c < 4; c++) {
      double swap = rows[i][c];
      rows[i][c] = rows[pivot][c];
      rows[pivot][c] = swap;
    }
    for (int r = 0; r < 3; r++) {
      double factor = r == i ? 0.0 : rows[r][i] / rows[i][i];
      for (int c = i; c < 4; c++)
        rows[r][c] -= factor * rows[i][c];
    }
  }
  for (int i = 0; i < 3; i++)
    x[i] = rows[i][3] / rows[i][i];
}

/* Over the points of at least `least_kv` KV tiles. */
static fit fit_points(const point *points, int32_t count, int32_t least_kv) {
  double rows[3][4] = { { 0 } }, x[3];
  for (int32_t i = 0; i < count; i++) {
    const point *p = &points[i];
    const double row[4] = { 1.0 / p->us, p->tiles / p->us, (double)p->tiles * p->kv / p->us, 1.0 };
    for (int r = 0; r < 3 && p->kv >= least_kv; r++)
      for (int c = 0; c < 4; c++)
        rows[r][c] += row[r] * row[c];
  }
  solve(rows, x);
  fit f = { x[0], x[1], x[2], 0.0 };
  for (int32_t i = 0; i < count; i++) {
    double error = fabs(model(&f, points[i].tiles, points[i].kv) / points[i].us - 1.0);
    f.worst = points[i].kv >= least_kv && error > f.worst ? error : f.worst;
  }
  return f;
}

/* A row for each n, a column for each t; in brackets how far the model is off. Points are in the order of n, then of t. */
static void print_points(const point *points, int32_t count, const fit *f, const int32_t *tiles, int32_t num_tiles) {
  printf("| KV tiles |");
  for (int32_t i = 0; i < num_tiles; i++)
    printf(" %d per part |", tiles[i]);
  printf(" one more tile | model |\n|---:|");
  for (int32_t i = 0; i < num_tiles + 2; i++)
    printf("---:|");
  for (int32_t i = 0; i < count;) {
    const point *first = &points[i], *last = first;
    printf("\n| %d |", first->kv);
    for (int32_t k = 0; k < num_tiles; k++) {
      if (i == count || points[i].kv != first->kv || points[i].tiles != tiles[k]) {
        printf(" |");
        continue;
      }
      last = &points[i++];
      printf(" %.2f (%+.0f%%) |", last->us, 100.0 * (model(f, last->tiles, last->kv) / last->us - 1.0));
    }
    double slope = last->tiles > first->tiles ? (last->us - first->us) / (last->tiles - first->tiles) : NAN;
    printf(" %.2f | %.2f |", slope, f->tile + first->kv * f->kv);
  }
  printf("\n\n");
}

/* ------------------------------------------------------------------------------------------------------------ the tables */

/* All t and n. With a query_len of a q tile's tokens they come from the prefill queue. */
static int32_t measure_points(const bench *b, const int32_t *tiles, int32_t num_tiles, int32_t first_kv, int32_t query_len,
                              point *points) {
  int32_t count = 0;
  for (int32_t kv = first_kv; kv <= b->m->max_kv / 4; kv *= 2)
    for (int32_t i = 0; i < num_tiles && tiles[i] * kv <= b->m->max_kv; i++) {
      load l = { .num_kv_heads = b->num_kv_heads, .kv = kv, .query_len = query_len, .shared_pages = query_len > 1 };
      l.count = tiles[i] * b->num_parts / b->num_kv_heads;
      bench_attention_result result;
      double us = measure(b, &l, tiles[i] * kv, &result);
      expect(result.cuts, 0, "parts that begin inside of a tile");
      expect(result.num_items, query_len > 1 ? tiles[i] * b->num_parts : 0, "items in the prefill queue");
      expect(result.num_splits, 0, "splits of tiles in the prefill queue");
      points[count++] = (point){ tiles[i], kv, us };
    }
  return count;
}

static double kv_ns_at_128(const bench *b, const fit *f) { return 1000.0 * f->kv * 128.0 / b->head_dim; }

static void print_fit(const bench *b, const fit *f, const char *over) {
  printf("| %s | %d | %s | %.0f | %.0f (%d) | %.0f (%d) | %.0f%% |\n", b->kind->name, b->head_dim, over, 1000.0 * f->fixed,
         1000.0 * f->tile, b->kind->plan.cost_tile, kv_ns_at_128(b, f), b->kind->plan.cost_kv, 100.0 * f->worst);
}

static fit print_line(const bench *b) {
  static const int32_t tiles[] = { 1, 2, 4, MAX_TILES };
  point points[MAX_POINTS];
  int32_t count = measure_points(b, tiles, 4, 1, 1, points);
  int32_t least = b->m->is_host ? 2 : 8;
  fit all = fit_points(points, count, 1), some = fit_points(points, count, least);
  char over[32];
  snprintf(over, sizeof over, "n >= %d", least);
  printf("\n## %s, head dim %d, %d parts: time of a launch, us (the model is off by)\n", b->kind->name, b->head_dim,
         b->num_parts);
  print_points(points, count, &all, tiles, 4);
  printf(
      "| kernel kind | head dim | fit over | fixed ns | cost_tile ns (now) | cost_kv ns at head dim 128 (now) | largest error |\n"
      "|---|---:|---|---:|---:|---:|---:|\n");
  print_fit(b, &all, "all");
  print_fit(b, &some, over);
  fflush(stdout);
  return all;
}

/* One KV head: a request is a tile. `ends` 0 and `splits` 1: whole tiles. */
static double measure_cut(const bench *b, int32_t kv, int32_t ends, int32_t splits) {
  static const bench_plan_costs costs = { 0, 1000, 0 }; /* cuts fall where KV tiles say */
  load l = { .num_kv_heads = 1, .query_len = 1, .kv = kv * splits, .ends = ends, .costs = &costs };
  l.count = ends > 0 ? b->num_parts - 1 : b->num_parts / splits;
  bench_attention_result result;
  double us = measure(b, &l, kv, &result);
  expect(result.cuts, ends > 0 ? b->num_parts - 1 : b->num_parts - l.count, "parts that begin inside of a tile");
  return us;
}

static void print_cuts(const bench *b, const fit *f) {
  double cuts[16];
  int32_t count = 0;
  printf("\n| KV tiles per part | whole us | cut in the middle us | a cut ns | in 2 splits us | 4 | 8 |\n"
         "|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int32_t kv = b->m->is_host ? 2 : 4; kv <= b->m->max_kv / 4; kv *= 2) {
    double whole = measure_cut(b, kv, 0, 1), cut = measure_cut(b, kv, kv / 2, 1);
    cuts[count++] = 1000.0 * (cut - whole);
    printf("| %d | %.2f | %.2f | %.0f |", kv, whole, cut, cuts[count - 1]);
    for (int32_t splits = 2; splits <= 8; splits *= 2)
      if (b->num_parts % splits == 0)
        printf(" %.2f |", measure_cut(b, kv, 0, splits));
      else
        printf(" |");
    printf("\n");
  }
  double snap = bench_quantile(cuts, count, 0.5);
  printf("\n| kernel kind | head dim | snap ns (now) | in KV tiles of this head dim |\n|---|---:|---:|---:|\n| %s | %d | %.0f "
         "(%d) | "
         "%.1f "
         "|\n",
         b->kind->name, b->head_dim, snap, b->kind->plan.snap, snap / (1000.0 * f->kv));
  fflush(stdout);
}

static void print_prefills(const bench *b) {
  static const int32_t tiles[] = { 1, 2, 4 };
  point points[MAX_POINTS];
  int32_t count = measure_points(b, tiles, 3, b->m->is_host ? 2 : 8, b->kind->plan.tile_lines / Q_PER_KV, points);
  fit f = fit_points(points, count, 1);
  double flops = 4.0 * b->kind->plan.tile_lines * b->kind->plan.tile_kv * b->head_dim * (b->m->is_host ? 1 : b->num_parts);
  printf("\nThe prefill queue, tiles of %d lines, KV in L2: time of a launch, us\n", b->kind->plan.tile_lines);
  print_points(points, count, &f, tiles, 3);
  printf("A tile %.0f ns, a KV tile %.0f ns (%.3g TFLOP/s in all), fixed %.0f ns.\n", 1000.0 * f.tile, 1000.0 * f.kv,
         flops / f.kv * 1e-6, 1000.0 * f.fixed);
}

/* The slope between two lengths of one CTA's only tile. */
static void print_single(const bench *b) {
  int32_t few = b->m->max_kv / 32, many = b->m->max_kv / 4;
  load l = { .num_kv_heads = 1, .num_parts = 1, .count = 1, .query_len = 1 };
  bench_attention_result result;
  l.kv = few;
  double first = measure(b, &l, few, &result);
  l.kv = many;
  double last = measure(b, &l, many, &result);
  printf("\nA CTA that has the device to itself: %.0f ns for a KV tile, %.2f us for %d of them.\n",
         1000.0 * (last - first) / (many - few), first, few);
}

/* Decodes with `prefills` q tiles of `prefill_kv` KV tiles each, for every KV head. In microseconds. */
static double measure_mixed(const bench *b, int32_t parts, int32_t decode_kv, int32_t prefills, int32_t prefill_kv) {
  load l = { .num_kv_heads = b->num_kv_heads, .count = parts, .kv = decode_kv, .query_len = 1 };
  l.prefills = prefills;
  l.prefill_kv = prefill_kv;
  l.decode_parts = parts;
  bench_attention_result result;
  double us = measure(b, &l, decode_kv, &result);
  expect(result.decode_parts, parts, "parts in the decode section");
  return us;
}

static void print_mixed(const bench *b) {
  int32_t parts_of_head = b->num_parts / b->num_kv_heads, decodes = parts_of_head / 3, others = parts_of_head - decodes;
  int32_t few = b->m->max_kv / 4, many = b->m->max_kv / 2;
  if (b->m->is_host || decodes == 0)
    return;
  double first = measure_mixed(b, decodes, few, others, few / 8), last = measure_mixed(b, decodes, many, 2 * others, few / 8);
  double with = 1000.0 * (last - first) / (many - few);
  double longer = measure_mixed(b, decodes, few / 4, 6 * others, few) - measure_mixed(b, decodes, few / 4, 3 * others, few);
  double shorter =
      measure_mixed(b, decodes, few / 4, 6 * others, few / 4) - measure_mixed(b, decodes, few / 4, 3 * others, few / 4);
  double rounds = 3.0 * others / parts_of_head, kv = 1000.0 * (longer - shorter) / rounds / (few - few / 4);
  const cgr__plan_traits *t = &b->kind->plan;
  int32_t w = b->head_dim <= 64 ? 0 : b->head_dim <= 128 ? 1 : 2;
  printf("\n| kernel kind | head dim | decode parts of %d | with_prefill ns (now) | prefill_tile ns (now) | prefill_kv ns "
         "(now) |\n"
         "|---|---:|---:|---:|---:|---:|\n| %s | %d | %d | %.0f (%d) | %.0f (%d) | %.0f (%d) |\n",
         parts_of_head, b->kind->name, b->head_dim, decodes, with, t->width[w].with_prefill,
         1000.0 * shorter / rounds - kv * (few / 4), t->width[w].prefill_tile, kv, t->width[w].prefill_kv);
}

static void calibrate_mixed(const machine *m, int32_t head_dim) {
  bench b = { .m = m, .head_dim = head_dim };
  b.kind = bench_attention_kind(m->dev, Q_PER_KV, 1, head_dim, &b.num_parts);
  b.num_kv_heads = gcd(b.num_parts, MAX_KV_HEADS);
  print_mixed(&b);
  fflush(stdout);
}

static void calibrate(const machine *m, int32_t head_dim) {
  bench b = { .m = m, .head_dim = head_dim };
  b.kind = bench_attention_kind(m->dev, Q_PER_KV, 1, head_dim, &b.num_parts);
  b.num_kv_heads = gcd(b.num_parts, MAX_KV_HEADS); /* requests x KV heads = t x G */
  fit f = print_line(&b);
  print_cuts(&b, &f);
  print_prefills(&b);
  print_single(&b);
  fflush(stdout);
}

static void open_machine(machine *m, const char *device) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_open(device, NULL, &m->dev), "cgr_device_open");
  bench_check(cgr_stream_create(m->dev, &m->stream), "cgr_stream_create");
  bench_check(cgr_device_get_info(m->dev, &info), "cgr_device_get_info");
  m->is_host = info.kind == CGR_DEVICE_KIND_HOST;
  m->max_kv = m->is_host ? 32 : 256;
  int32_t parts, most = 0, lines = 0; /* lines: of q, in one launch */
  for (int32_t head_dim = 64; head_dim <= 256; head_dim *= 2) {
    int32_t tile_lines = bench_attention_kind(m->dev, Q_PER_KV, 1, head_dim, &parts)->plan.tile_lines;
    lines = MAX_TILES * parts * tile_lines > lines ? MAX_TILES * parts * tile_lines : lines;
    most = parts > most ? parts : most;
  }
  /* The longest launch twice: as many KV tiles of 64 tokens, K and V, for each part. */
  m->pool_bytes = (size_t)2 * (size_t)m->max_kv * (size_t)most * 64 * 128 * 4;
  m->pool = bench_make_tensor(m->dev, m->stream, CGR_DTYPE_BF16, m->pool_bytes / 2);
  m->q = bench_make_tensor(m->dev, m->stream, CGR_DTYPE_BF16, (size_t)lines * 256);
  m->out = bench_make_tensor(m->dev, m->stream, CGR_DTYPE_BF16, (size_t)lines * 256);
}

int main(int argc, char **argv) {
  machine m;
  open_machine(&m, argc > 1 ? argv[1] : NULL);
  bench_print_head(stdout, m.dev, "profiles/calibrate");
  if (argc < 3 || strcmp(argv[2], "mixed") != 0) {
    calibrate(&m, 64);
    calibrate(&m, 128);
  }
  for (int32_t head_dim = 64; head_dim <= 256; head_dim *= 2)
    calibrate_mixed(&m, head_dim);
  bench_close_device(m.dev, m.stream, (void *[]){ m.pool, m.q, m.out }, 3);
  return 0;
}
