#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "profiles/support/bench.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "devices/error.h"
#include "profiles/support/accept.h"
#include "profiles/support/clock.h"
#include "profiles/support/empty.h"

double bench_now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare_values(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_quantile(double *values, int32_t count, double quantile) {
  qsort(values, (size_t)count, sizeof *values, compare_values);
  int32_t index = (int32_t)(quantile * (double)(count - 1) + 0.5);
  return values[index];
}

void bench_check(cgr_status status, const char *what) {
  if (status == CGR_OK)
    return;
  fprintf(stderr, "%s: %s: %s\n", what, cgr_status_name(status), cgr_last_message());
  exit(1);
}

static cgr_status spin(const bench_engine *e, const bench_spin *args, cudaStream_t stream) {
  return cgr__device_fail(e->dev, e->dev->ops->launch(e->dev, &bench_kernel_spin, args, stream), "a kernel that spins");
}

/* In place of what a layer has besides attention. */
static cgr_status fill(const bench_engine *e, cudaStream_t stream) {
  cgr_status status = CGR_OK;
  for (int32_t i = 0; i < e->fillers && status == CGR_OK; i++)
    if (e->filler.iterations > 0)
      status = spin(e, &e->filler, stream);
    else
      status = cgr__device_fail(e->dev, e->dev->ops->launch(e->dev, &bench_kernel_empty, NULL, stream), "an empty kernel");
  return status;
}

static cgr_status buffer_of(cgr_recorder *recorder, cgr_buffer which, void *data) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_status status = cgr_record_buffer(recorder, which, 0, &view);
  memcpy(data, &view.data, sizeof view.data);
  return status;
}

/* The engine's sampler, if it has guesses. */
static cgr_status accept(const bench_engine *e, cgr_recorder *recorder, const cgr_record_info *info) {
  bench_accept a = { .requests = info->num_requests, .stride = 1 + e->draft_tokens };
  if (e->draft_tokens == 0)
    return CGR_OK;
  cgr_status status = buffer_of(recorder, CGR_BUFFER_NUM_DRAFTS, &a.num_drafts);
  if (status == CGR_OK)
    status = buffer_of(recorder, CGR_BUFFER_SEQ_LENS, &a.seq_lens);
  if (status == CGR_OK)
    status = buffer_of(recorder, CGR_BUFFER_NUM_ACCEPTED, &a.num_accepted);
  if (status == CGR_OK)
    status = buffer_of(recorder, CGR_BUFFER_NEXT_TOKENS, &a.next_tokens);
  if (status != CGR_OK)
    return status;
  return cgr__device_fail(e->dev, e->dev->ops->launch(e->dev, &bench_kernel_accept, &a, info->stream), "the kernel that accepts");
}

cgr_status bench_record(cgr_recorder *recorder, void *context) {
  const bench_engine *e = context;
  cgr_dtype dtype = (cgr_dtype)e->dtype;
  cgr_attention a = CGR_ATTENTION_INIT;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  if (status == CGR_OK && e->pace)
    status = spin(e, &(bench_spin){ .pace = e->pace }, info.stream);
  if (status == CGR_OK)
    status = cgr_view_make(e->q, dtype, e->num_q_heads, e->head_dim, &a.q);
  if (status == CGR_OK)
    status = cgr_view_make(e->k, dtype, e->num_kv_heads, e->head_dim, &a.k);
  if (status == CGR_OK)
    status = cgr_view_make(e->v, dtype, e->num_kv_heads, e->head_dim, &a.v);
  if (status == CGR_OK)
    status = cgr_view_make(e->out, dtype, e->num_q_heads, e->head_dim, &a.out);
  for (a.layer = 0; a.layer < e->num_layers && status == CGR_OK; a.layer++) {
    status = fill(e, info.stream);
    if (status == CGR_OK)
      status = cgr_record_attention(recorder, &a);
  }
  return status == CGR_OK ? accept(e, recorder, &info) : status;
}

void bench_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  exit(1);
}

/* A word of two random codes of 8 bits, or an element of 16: sign and mantissa from a generator, one of eight exponents. */
static uint16_t random_word(cgr_dtype dtype, uint64_t state) {
  if (dtype == CGR_DTYPE_I8)
    return (uint16_t)state;
  if (dtype == CGR_DTYPE_FP8_E4M3)
    return (uint16_t)(state & 0xbfbfu);
  if (dtype == CGR_DTYPE_FP8_E5M2)
    return (uint16_t)((state & 0x8383u) | (7 + (state >> 32) % 8) << 2 | (7 + (state >> 40) % 8) << 10);
  const int mantissa = dtype == CGR_DTYPE_FP16 ? 10 : 7, least = dtype == CGR_DTYPE_FP16 ? 7 : 119;
  return (uint16_t)((state & (0x8000u | ((1u << mantissa) - 1))) | ((uint64_t)least + (state >> 32) % 8) << mantissa);
}

/* Random elements in about [-1, 1), codes of e4m3 in (-2, 2). After the first chunk the
 * memory is copied from itself: pools are large, and the way from the host is narrow. */
static void fill_random(cgr_device *dev, cudaStream_t stream, cgr_dtype dtype, char *memory, size_t bytes) {
  const size_t chunk = (size_t)64 << 20;
  void *pinned;
  size_t size = bytes < chunk ? bytes : chunk;
  bench_check(cgr_memory_alloc_pinned(dev, size, &pinned), "pinned memory");
  uint64_t state = 88172645463325252u;
  uint16_t *words = pinned;
  for (size_t i = 0; i < size / 2; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    words[i] = random_word(dtype, state);
  }
  bench_check(cgr_copy(dev, memory, pinned, size, stream), "upload");
  for (size_t at = size, length; at < bytes; at += length) {
    length = bytes - at < at ? bytes - at : at;
    bench_check(cgr_copy(dev, memory + at, memory, length, stream), "copy");
  }
  bench_check(cgr_stream_synchronize(dev, stream), "upload");
  bench_check(cgr_memory_free_pinned(dev, pinned), "pinned memory");
}

void *bench_make_tensor(cgr_device *dev, cudaStream_t stream, cgr_dtype dtype, size_t elements) {
  void *memory;
  const size_t bytes = elements * cgr_dtype_size(dtype);
  bench_check(cgr_memory_alloc(dev, bytes, &memory), "memory");
  fill_random(dev, stream, dtype, memory, bytes);
  return memory;
}

static void *make_tensor(bench_engine *e, size_t elements) {
  return bench_make_tensor(e->dev, e->stream, (cgr_dtype)e->dtype, elements);
}

/* Of one layer, K and V. */
static size_t pool_bytes(const bench_engine *e) {
  return (size_t)4 * (size_t)e->num_pages * (size_t)e->page_size * (size_t)e->num_kv_heads * (size_t)e->head_dim;
}

int32_t *bench_make_page_order(int64_t num_pages) {
  int64_t count = num_pages - 2;
  int32_t *order = malloc((size_t)count * sizeof *order);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < count; i++)
    order[i] = (int32_t)(i + 2);
  for (int64_t i = count - 1; i > 0; i--) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int64_t j = (int64_t)((state >> 33) % (uint64_t)(i + 1));
    int32_t swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  return order;
}

/* Adapters of tokens, say, and parameters of requests. */
static const cgr_buffer_decl *declare(cgr_buffer_decl declared[2]) {
  declared[0] = declared[1] = (cgr_buffer_decl)CGR_BUFFER_DECL_INIT;
  declared[0].name = "of tokens";
  declared[0].dimension = CGR_DIMENSION_TOKENS;
  declared[0].dtype = CGR_DTYPE_I32;
  declared[1].name = "of requests";
  declared[1].dimension = CGR_DIMENSION_REQUESTS;
  declared[1].dtype = CGR_DTYPE_FP32;
  declared[1].width = 4;
  declared[0].source = declared[1].source = CGR_SOURCE_STAGED;
  return declared;
}

static void make_runtime(bench_engine *e, const bench_options *o) {
  cgr_group group = CGR_GROUP_INIT;
  group.page_size = e->page_size;
  group.num_pages = e->num_pages;
  cgr_layer *layers = calloc((size_t)e->num_layers, sizeof *layers);
  for (int32_t l = 0; l < e->num_layers; l++) {
    layers[l] = (cgr_layer)CGR_LAYER_INIT;
    layers[l].num_q_heads = e->num_q_heads;
    layers[l].num_kv_heads = e->num_kv_heads;
    layers[l].head_dim = e->head_dim;
    bench_check(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, (char *)e->cache + (size_t)l * pool_bytes(e), (cgr_dtype)e->dtype,
                                      e->page_size, e->num_kv_heads, e->head_dim, &layers[l].k, &layers[l].v),
                "cgr_kv_view_make_pair");
  }
  cgr_config config = CGR_CONFIG_INIT;
  cgr_buffer_decl declared[2];
  config.buffers = o->declares ? declare(declared) : NULL;
  config.num_buffers = o->declares ? 2 : 0;
  config.on_demand = o->on_demand;
  config.device_handle = e->dev;
  config.groups = &group;
  config.num_groups = 1;
  config.layers = layers;
  config.num_layers = e->num_layers;
  config.max_requests = e->max_requests;
  config.max_tokens = e->max_tokens;
  config.max_seq_len = e->max_seq_len;
  config.ring_depth = o->ring_depth;
  config.num_draft_tokens = o->draft_tokens;
  config.nvtx = o->nvtx;
  config.labels = o->labels;
  config.timing = o->timing;
  config.graph_mode = o->mode == CGR_MODE_DEFAULT ? CGR_MODE_FULL_DECODE_ONLY : o->mode;
  config.mixed_buckets = o->mixed;
  config.num_mixed_buckets = o->num_mixed;
  config.decode_buckets = o->buckets;
  config.num_decode_buckets = o->num_buckets;
  bench_check(cgr_runtime_create(&config, &e->rt), "cgr_runtime_create");
  free(layers);
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = o->record ? o->record : bench_record;
  capture.engine = e;
  bench_check(cgr_runtime_warmup(e->rt, &capture), "cgr_runtime_warmup");
  e->estimate = (cgr_capture_estimate)CGR_CAPTURE_ESTIMATE_INIT;
  if (o->estimate)
    bench_check(cgr_runtime_estimate_capture(e->rt, &capture, &e->estimate), "cgr_runtime_estimate_capture");
  bench_check(cgr_runtime_capture(e->rt, &capture), "cgr_runtime_capture");
}

void bench_open(bench_engine *e, const bench_options *o) {
  memset(e, 0, sizeof *e);
  e->num_layers = o->num_layers;
  e->num_q_heads = o->num_q_heads;
  e->num_kv_heads = o->num_kv_heads;
  e->head_dim = o->head_dim;
  e->page_size = o->page_size;
  e->max_requests = o->max_requests;
  e->max_tokens = o->max_tokens;
  e->max_seq_len = o->max_seq_len;
  e->num_pages = o->num_pages;
  e->fillers = o->fillers;
  e->draft_tokens = o->draft_tokens;
  e->dtype = CGR_DTYPE_BF16;
  bench_check(cgr_device_open(o->device, NULL, &e->dev), "cgr_device_open");
  bench_check(cgr_stream_create(e->dev, &e->stream), "cgr_stream_create");
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_get_info(e->dev, &info), "cgr_device_get_info");
  e->is_host = info.kind == CGR_DEVICE_KIND_HOST;
  e->filler = (bench_spin){ .iterations = o->iterations, .blocks = info.num_multiprocessors };
  if (o->paced) {
    void *pace;
    bench_check(cgr_memory_alloc(e->dev, sizeof *e->pace, &pace), "cgr_memory_alloc");
    e->pace = pace;
    bench_set_pace(e, 0);
  }
  e->cache = make_tensor(e, (size_t)e->num_layers * pool_bytes(e) / 2);
  e->q = make_tensor(e, (size_t)e->max_tokens * (size_t)e->num_q_heads * (size_t)e->head_dim);
  e->k = make_tensor(e, (size_t)e->max_tokens * (size_t)e->num_kv_heads * (size_t)e->head_dim);
  e->v = make_tensor(e, (size_t)e->max_tokens * (size_t)e->num_kv_heads * (size_t)e->head_dim);
  e->out = make_tensor(e, (size_t)e->max_tokens * (size_t)e->num_q_heads * (size_t)e->head_dim);
  e->page_order = bench_make_page_order(e->num_pages);
  e->rows = calloc((size_t)e->max_requests, sizeof *e->rows);
  make_runtime(e, o);
}

void bench_close(bench_engine *e) {
  bench_check(cgr_runtime_destroy(e->rt), "cgr_runtime_destroy");
  void *memory[] = { e->cache, e->q, e->k, e->v, e->out, e->pace };
  for (int i = 0; i < 5 + (e->pace != NULL); i++)
    bench_check(cgr_memory_free(e->dev, memory[i]), "cgr_memory_free");
  bench_check(cgr_stream_destroy(e->dev, e->stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(e->dev), "cgr_device_close");
  free(e->rows);
  free(e->page_order);
}

void bench_set_pace(bench_engine *e, uint64_t ns) {
  bench_check(cgr_copy(e->dev, e->pace, &ns, sizeof ns, e->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_stream_synchronize");
}

int32_t bench_take_page(bench_engine *e) {
  int32_t page = e->page_order[e->next_page];
  e->next_page = (e->next_page + 1) % (e->num_pages - 2);
  return page;
}

void bench_flush(bench_engine *e) {
  cgr_status status;
  while ((status = cgr_runtime_flush(e->rt, NULL, NULL, e->stream)) == CGR_ERROR_BUSY)
    bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_stream_synchronize");
  bench_check(status, "cgr_runtime_flush");
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_stream_synchronize");
}

/* Each row's pages are flushed at once, so that steps find clean tables. */
void bench_open_rows(bench_engine *e, int32_t count, int32_t length, int32_t capacity) {
  int32_t num_pages = (capacity + e->page_size - 1) / e->page_size;
  int32_t *pages = malloc((size_t)num_pages * sizeof *pages);
  for (int32_t i = 0; i < count; i++) {
    bench_check(cgr_request_open(e->rt, (uint64_t)i, &e->rows[i]), "cgr_request_open");
    for (int32_t p = 0; p < num_pages; p++)
      pages[p] = bench_take_page(e);
    bench_check(cgr_request_set_pages(e->rt, e->rows[i], 0, 0, pages, num_pages), "cgr_request_set_pages");
    bench_check(cgr_request_set_length(e->rt, e->rows[i], length), "cgr_request_set_length");
    bench_flush(e);
  }
  free(pages);
}

void bench_close_rows(bench_engine *e, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    bench_check(cgr_request_close(e->rt, e->rows[i]), "cgr_request_close");
}

uint64_t bench_completed(bench_engine *e) {
  uint64_t seq = 0;
  bench_check(cgr_runtime_completed(e->rt, NULL, &seq), "cgr_runtime_completed");
  return seq;
}

void bench_wait(bench_engine *e, uint64_t seq) {
  while (bench_completed(e) < seq)
    if (e->is_host)
      bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_stream_synchronize");
}

void bench_print_head(FILE *out, cgr_device *dev, const char *program) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_get_info(dev, &info), "cgr_device_get_info");
  char date[32];
  time_t now = time(NULL);
  strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
  const char *commit = getenv("CGR_COMMIT"), *driver = getenv("CGR_DRIVER");
  fprintf(out, "# program: %s\n# device: %s (%d multiprocessors)\n# driver: %s (CUDA %d.%d)\n# library: %s\n", program, info.name,
          info.num_multiprocessors, driver ? driver : "unknown", info.driver_version / 1000, info.driver_version % 1000 / 10,
          cgr_build_info());
  fprintf(out, "# date: %s\n# commit: %s\n", date, commit ? commit : "unknown");
}

void bench_close_device(cgr_device *dev, cudaStream_t stream, void *const *tensors, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    bench_check(cgr_memory_free(dev, tensors[i]), "cgr_memory_free");
  bench_check(cgr_stream_destroy(dev, stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(dev), "cgr_device_close");
}
