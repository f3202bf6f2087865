#include "cgr/names.h"
#include "profiles/support/step32.h"

#include <stdlib.h>
#include <string.h>

#ifdef CGR_WITH_CUDA
#include <cuda_profiler_api.h>
#endif

#define Q_HEADS 32
#define KV_HEADS 8
#define HEAD_DIM 128
#define PAGE_SIZE 16
#define MOST_PAGES 8192 /* of each layer's pool; requests share pages beyond that */
#define SPINS 3         /* kernels in place of a layer's matrices */
#define ITERATIONS 2000

/* ---------------------------------------------------------------------------------------------------------------- options */

static void refuse(const char *program) {
  bench_fail("usage: %s [cuda:0|host] [--layers 1..1024] [--requests 1..4096] [--length N] [--replays N] [--warm-up N] "
             "[--kind full|piecewise|none] [--labels FILE]",
             program);
}

static bool read_number(const char *name, const char *value, const char *option, int32_t least, int32_t most, int32_t *number) {
  char *end;
  if (strcmp(name, option) != 0)
    return false;
  long read = strtol(value, &end, 10);
  if (*value == 0 || *end != 0 || read < least || read > most)
    bench_fail("%s is %s, expected %d .. %d", option, value, least, most);
  *number = (int32_t)read;
  return true;
}

static bool read_option(step32_options *o, const char *name, const char *value) {
  bool is_kind = strcmp(name, "--kind") == 0;
  bool is_mixed = strcmp(value, "piecewise") == 0, is_eager = strcmp(value, "none") == 0;
  if (is_kind && strcmp(value, "full") != 0 && !is_mixed && !is_eager)
    bench_fail("--kind is %s, expected full, piecewise or none", value);
  if (is_kind)
    o->mixed = is_mixed, o->eager = is_eager;
  if (strcmp(name, "--labels") == 0)
    o->labels = value;
  return is_kind || strcmp(name, "--labels") == 0 || read_number(name, value, "--layers", 1, 1024, &o->layers) ||
         read_number(name, value, "--requests", 1, 4096, &o->requests) ||
         read_number(name, value, "--length", 1, 1 << 20, &o->length) ||
         read_number(name, value, "--replays", 1, 100000, &o->replays) ||
         read_number(name, value, "--warm-up", 1, 100000, &o->warmup);
}

step32_options step32_read(int argc, char **argv) {
  const step32_options small = { .layers = 2, .requests = 2, .length = 64, .replays = 5, .warmup = 2 };
  step32_options o = { .layers = 32, .requests = 16, .length = 2048, .replays = 100, .warmup = 20 };
  int i = 1;
  if (argc > 1 && strcmp(argv[1], "host") == 0)
    o = small; /* just to try it: the host lacks a GPU's speed */
  if (argc > 1 && argv[1][0] != '-')
    o.device = argv[i++];
  for (; i + 1 < argc; i += 2)
    if (!read_option(&o, argv[i], argv[i + 1]))
      refuse(argv[0]);
  if (i < argc)
    refuse(argv[0]);
  return o;
}

/* ------------------------------------------------------------------------------------------------------------------ engine */

static int32_t tokens_of(const step32_options *o) { return o->mixed ? o->requests - 1 + STEP32_CHUNK : o->requests; }

/* In a layer's place: what is copied, filled and computed before its attention. */
static cgr_status record_layer(const bench_engine *e, const cgr_record_info *info) {
  size_t q_bytes = (size_t)info->num_tokens * Q_HEADS * HEAD_DIM * 2, k_bytes = q_bytes / Q_HEADS * KV_HEADS;
  cgr_status status = cgr_copy(e->dev, e->q, e->out, q_bytes, info->stream);
  if (status == CGR_OK)
    status = cgr_fill(e->dev, e->k, 0x3c, k_bytes, info->stream);
  for (int32_t i = 0; i < SPINS && status == CGR_OK; i++)
    if (e->dev->ops->launch(e->dev, &bench_kernel_spin, &e->filler, info->stream) != 0)
      status = CGR_ERROR_DEVICE;
  return status;
}

static cgr_status record_layers(cgr_recorder *recorder, const bench_engine *e, const cgr_record_info *info) {
  cgr_attention a = CGR_ATTENTION_INIT;
  cgr_status status = cgr_view_make(e->q, CGR_DTYPE_BF16, Q_HEADS, HEAD_DIM, &a.q);
  if (status == CGR_OK)
    status = cgr_view_make(e->k, CGR_DTYPE_BF16, KV_HEADS, HEAD_DIM, &a.k);
  if (status == CGR_OK)
    status = cgr_view_make(e->v, CGR_DTYPE_BF16, KV_HEADS, HEAD_DIM, &a.v);
  if (status == CGR_OK)
    status = cgr_view_make(e->out, CGR_DTYPE_BF16, Q_HEADS, HEAD_DIM, &a.out);
  for (a.layer = 0; a.layer < e->num_layers && status == CGR_OK; a.layer++) {
    status = record_layer(e, info);
    if (status == CGR_OK)
      status = cgr_record_attention(recorder, &a);
  }
  return status;
}

static cgr_status record(cgr_recorder *recorder, void *engine) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  return status == CGR_OK ? record_layers(recorder, engine, &info) : status;
}

void step32_open(step32 *s, const step32_options *o) {
  const cgr_bucket bucket = { tokens_of(o), o->requests };
  int32_t capacity = o->length + STEP32_CHUNK + o->warmup + o->replays + 1;
  int64_t pages = (int64_t)o->requests * ((capacity + PAGE_SIZE - 1) / PAGE_SIZE) + 2;
  bench_options b = { .device = o->device, .num_layers = o->layers, .num_q_heads = Q_HEADS, .num_kv_heads = KV_HEADS };
  s->o = *o;
  s->num_steps = 0;
  b.head_dim = HEAD_DIM;
  b.page_size = PAGE_SIZE;
  b.max_requests = o->requests;
  b.max_tokens = tokens_of(o);
  b.max_seq_len = capacity;
  b.num_pages = pages < MOST_PAGES ? pages : MOST_PAGES;
  if (b.num_pages * PAGE_SIZE < capacity + 2 * PAGE_SIZE)
    b.num_pages = capacity / PAGE_SIZE + 3;
  b.iterations = ITERATIONS;
  b.mode = o->eager ? CGR_MODE_NONE : o->mixed ? CGR_MODE_PIECEWISE : CGR_MODE_FULL_DECODE_ONLY;
  b.buckets = &o->requests;
  b.num_buckets = 1;
  b.mixed = &bucket;
  b.num_mixed = 1;
  b.labels = 1;
  b.nvtx = 1;
  b.record = record;
  bench_open(&s->engine, &b);
  bench_open_rows(&s->engine, o->requests, o->length, capacity);
}

void step32_close(step32 *s) { bench_close(&s->engine); }

/* ------------------------------------------------------------------------------------------------------------------- steps */

static void check_kind(const step32 *s, const cgr_step *step) {
  cgr_graph_kind wanted = s->o.eager ? CGR_KIND_NONE : s->o.mixed ? CGR_KIND_PIECEWISE : CGR_KIND_FULL;
  if (step->key.kind != (int32_t)wanted)
    bench_fail("step %llu ran as %s", (unsigned long long)step->mark.seq, cgr_graph_kind_name((cgr_graph_kind)step->key.kind));
}

/* The chunk is always the same one. */
static void rewind_chunk(step32 *s) {
  bench_engine *e = &s->engine;
  bench_check(cgr_request_set_length(e->rt, e->rows[s->o.requests - 1], s->o.length), "cgr_request_set_length");
  bench_flush(e);
}

static void step_once(step32 *s, const cgr_batch *batch) {
  bench_engine *e = &s->engine;
  cgr_step step = CGR_STEP_INIT;
  if (s->o.mixed && s->num_steps > 0)
    rewind_chunk(s);
  bench_check(cgr_step_prepare(e->rt, batch, &step), "cgr_step_prepare");
  bench_check(cgr_step_launch(e->rt, &step, e->stream), "cgr_step_launch");
  check_kind(s, &step);
  bench_wait(e, step.mark.seq);
  s->key = step.key;
  s->num_steps++;
}

void step32_run(step32 *s, int32_t steps) {
  int32_t requests = s->o.requests, num_tokens = tokens_of(&s->o);
  int32_t *lens = malloc((size_t)requests * sizeof *lens), *tokens = calloc((size_t)num_tokens, sizeof *tokens);
  cgr_batch batch = CGR_BATCH_INIT;
  if (!lens || !tokens)
    bench_fail("no memory for a batch of %d requests", requests);
  for (int32_t i = 0; i < requests; i++)
    lens[i] = s->o.mixed && i == requests - 1 ? STEP32_CHUNK : 1;
  batch.num_requests = requests;
  batch.rows = s->engine.rows;
  batch.query_lens = lens;
  batch.tokens = tokens;
  for (int32_t i = 0; i < steps; i++)
    step_once(s, &batch);
  bench_check(cgr_stream_synchronize(s->engine.dev, s->engine.stream), "cgr_stream_synchronize");
  free(lens);
  free(tokens);
}

void step32_fence(const step32 *s, bool begin) {
#ifdef CGR_WITH_CUDA
  if (!s->engine.is_host && (begin ? cudaProfilerStart() : cudaProfilerStop()) != cudaSuccess)
    bench_fail("cudaProfiler%s fails", begin ? "Start" : "Stop");
#else
  (void)s, (void)begin;
#endif
}

/* ------------------------------------------------------------------------------------------------------------------ labels */

char *step32_labels(const step32 *s) {
  size_t length = 0;
  bench_check(cgr_runtime_graph_labels(s->engine.rt, NULL, 0, &length), "cgr_runtime_graph_labels");
  char *json = malloc(length + 1);
  if (!json)
    bench_fail("no memory for %zu bytes of labels", length + 1);
  bench_check(cgr_runtime_graph_labels(s->engine.rt, json, length + 1, &length), "cgr_runtime_graph_labels");
  return json;
}

void step32_write_labels(const step32 *s) {
  if (!s->o.labels)
    return;
  char *json = step32_labels(s);
  FILE *file = fopen(s->o.labels, "w");
  if (!file || fputs(json, file) < 0 || fclose(file) != 0)
    bench_fail("%s cannot be written", s->o.labels);
  free(json);
}
