/* The smallest engine: one layer on the host device. */
#ifndef CGR_TESTS_HEADERS_WORLD_H
#define CGR_TESTS_HEADERS_WORLD_H

#include <stddef.h>

#include "cgr/tracing.h"
#include "tests/headers/check.h"

enum { WORLD_DIM = 8, WORLD_PAGES = 8, WORLD_STRETCH = 4096, WORLD_STRETCHES = 16 };

typedef struct world {
  cgr_device *device;
  cgr_runtime *runtime;
  cudaStream_t stream;
  unsigned char *memory;
  cgr_group group;
  cgr_layer layers[3]; /* each over its own cache; the runtime has only the first */
  cgr_buffer_decl buffer;
  cgr_config config;
  cgr_attention attention;
  int32_t row, token;
  /* What record does instead of its call: the call under test, and its outcome. */
  cgr_status (*inside)(struct world *w, cgr_recorder *recorder, void *given);
  void *given;
  cgr_status came;
} world;

static inline cgr_status world_record(cgr_recorder *recorder, void *engine) {
  world *w = (world *)engine;
  if (!w) /* of a cgr_capture that was cut off before it */
    return CGR_ERROR_NULL_POINTER;
  if (!w->inside)
    return cgr_record_attention(recorder, &w->attention);
  w->came = w->inside(w, recorder, w->given);
  return w->came;
}

static inline void world_configure(world *w) {
  const cgr_group group = CGR_GROUP_INIT;
  const cgr_layer layer = CGR_LAYER_INIT;
  const cgr_buffer_decl buffer = CGR_BUFFER_DECL_INIT;
  const cgr_config config = CGR_CONFIG_INIT;
  w->group = group;
  w->group.num_pages = WORLD_PAGES;
  for (int i = 0; i < 3; i++) {
    unsigned char *k = w->memory + 2 * i * WORLD_STRETCH;
    w->layers[i] = layer;
    w->layers[i].num_q_heads = w->layers[i].num_kv_heads = 1;
    w->layers[i].head_dim = WORLD_DIM;
    CHECK_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, k, CGR_DTYPE_FP32, 16, 1, WORLD_DIM, &w->layers[i].k));
    CHECK_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, k + WORLD_STRETCH, CGR_DTYPE_FP32, 16, 1, WORLD_DIM, &w->layers[i].v));
  }
  w->buffer = buffer;
  w->buffer.dimension = CGR_DIMENSION_TOKENS;
  w->buffer.dtype = CGR_DTYPE_I32;
  w->buffer.width = 3;
  w->buffer.name = "mine";
  w->config = config;
  w->config.device_handle = w->device;
  w->config.groups = &w->group;
  w->config.layers = w->layers;
  w->config.buffers = &w->buffer;
  w->config.num_groups = w->config.num_layers = w->config.num_buffers = 1;
  w->config.max_requests = 1;
  w->config.max_tokens = 8;
  w->config.max_seq_len = 64;
  w->config.timing = CGR_TIMING_PHASES;
}

static inline void world_call(world *w) {
  const cgr_attention attention = CGR_ATTENTION_INIT;
  unsigned char *at = w->memory + 8 * WORLD_STRETCH;
  w->attention = attention;
  CHECK_OK(cgr_view_make(at, CGR_DTYPE_FP32, 1, WORLD_DIM, &w->attention.q));
  CHECK_OK(cgr_view_make(at + WORLD_STRETCH, CGR_DTYPE_FP32, 1, WORLD_DIM, &w->attention.k));
  CHECK_OK(cgr_view_make(at + 2 * WORLD_STRETCH, CGR_DTYPE_FP32, 1, WORLD_DIM, &w->attention.v));
  CHECK_OK(cgr_view_make(at + 3 * WORLD_STRETCH, CGR_DTYPE_FP32, 1, WORLD_DIM, &w->attention.out));
}

static inline cgr_capture world_capture(world *w) {
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = world_record;
  capture.engine = w;
  return capture;
}

/* Everything but the runtime. */
static inline void world_open(world *w) {
  memset(w, 0, sizeof *w);
  CHECK_OK(cgr_device_open("host", NULL, &w->device));
  CHECK_OK(cgr_stream_create(w->device, &w->stream));
  CHECK_OK(cgr_memory_alloc(w->device, WORLD_STRETCH * WORLD_STRETCHES, (void **)&w->memory));
  memset(w->memory, 0, WORLD_STRETCH * WORLD_STRETCHES);
  world_configure(w);
  world_call(w);
}

/* Also a runtime with its graph and an open request that has a page. */
static inline void world_run(world *w) {
  const int32_t page = 2;
  cgr_capture capture;
  world_open(w);
  capture = world_capture(w);
  CHECK_OK(cgr_runtime_create(&w->config, &w->runtime));
  CHECK_OK(cgr_runtime_capture(w->runtime, &capture));
  CHECK_OK(cgr_request_open(w->runtime, 7, &w->row));
  CHECK_OK(cgr_request_set_pages(w->runtime, w->row, 0, 0, &page, 1));
  w->token = 5;
}

/* One token for the request. */
static inline cgr_batch world_batch(const world *w) {
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = 1;
  batch.rows = &w->row;
  batch.tokens = &w->token;
  return batch;
}

/* Nothing that a call made may be left. */
static inline void world_close(world *w) {
  CHECK_OK(cgr_runtime_destroy(w->runtime));
  CHECK_OK(cgr_stream_destroy(w->device, w->stream));
  CHECK_OK(cgr_memory_free(w->device, w->memory));
  CHECK_OK(cgr_device_close(w->device));
}

#endif
