/* The minimum that an engine has to write: a model of two layers and a sampler, on any device. For the host device alone:
 *     cc minimal.c minimal_model.c $(pkg-config --cflags --libs cgr) -lm -o minimal && ./minimal --help */
#include <cgr/cgr.h>
#include <stdio.h>
#include "minimal_model.h"
enum { LAYERS = 2, DIM = MINIMAL_HEAD_DIM, PAGE_SIZE = 16, PAGES = 6, MAX_TOKENS = MINIMAL_TOKENS, MAX_SEQ_LEN = 64 };
enum { KV_BYTES = PAGES * 2 * PAGE_SIZE * DIM * 2 }; /* of a layer: K and V of each page, one head of bf16 */

struct engine {
  cgr_device *device;
  cgr_runtime *runtime;
  cudaStream_t stream;
  void *cache;
  minimal_model model;
};

/* One step: captured as a graph, and run for steps without one. Kernels are launched for padded counts and read cgr's buffers. */
static cgr_status record(cgr_recorder *recorder, void *context) {
  const minimal_model *m = &((struct engine *)context)->model;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  TRY(cgr_record_get_info(recorder, &info));
  TRY(minimal_embed(m, info.num_tokens, info.stream));
  for (int32_t layer = 0; layer < LAYERS; layer++) {
    cgr_attention attention = CGR_ATTENTION_INIT;
    attention.layer = layer;
    TRY(cgr_view_make(m->q, CGR_DTYPE_BF16, 1, DIM, &attention.q)); /* dense: [tokens][1 head][DIM] */
    TRY(cgr_view_make(m->k, CGR_DTYPE_BF16, 1, DIM, &attention.k));
    TRY(cgr_view_make(m->v, CGR_DTYPE_BF16, 1, DIM, &attention.v));
    TRY(cgr_view_make(m->out, CGR_DTYPE_BF16, 1, DIM, &attention.out));
    TRY(minimal_project(m, layer, info.num_tokens, info.stream));
    TRY(cgr_record_attention(recorder, &attention)); /* k and v go to the cache, then q attends to it */
    TRY(minimal_add(m, layer, info.num_tokens, info.stream));
  }
  return minimal_sample(m, info.num_requests, info.stream);
}

static cgr_status start(struct engine *e, const char *device) {
  TRY(cgr_device_open(device, NULL, &e->device));
  TRY(cgr_stream_create(e->device, &e->stream));
  TRY(cgr_memory_alloc(e->device, LAYERS * KV_BYTES, &e->cache));
  TRY(cgr_fill(e->device, e->cache, 0, LAYERS * KV_BYTES, e->stream)); /* page 0 has to hold finite values */
  TRY(cgr_stream_synchronize(e->device, e->stream));                   /* the runtime's own stream does not wait for this one */
  cgr_group group = CGR_GROUP_INIT;
  group.page_size = PAGE_SIZE, group.num_pages = PAGES; /* 0 and 1 are reserved; 0 must hold numbers that are finite */
  cgr_layer layers[LAYERS] = { CGR_LAYER_INIT, CGR_LAYER_INIT };
  for (int i = 0; i < LAYERS; i++) {
    cgr_layer *l = &layers[i];
    l->num_q_heads = l->num_kv_heads = 1, l->head_dim = DIM, l->scale = MINIMAL_SCALE;
    TRY(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, (char *)e->cache + i * KV_BYTES, CGR_DTYPE_BF16, PAGE_SIZE, 1, DIM, &l->k, &l->v));
  }
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = e->device, config.groups = &group, config.num_groups = 1, config.layers = layers;
  config.num_layers = LAYERS, config.max_requests = 4, config.max_tokens = MAX_TOKENS, config.max_seq_len = MAX_SEQ_LEN;
  TRY(cgr_runtime_create(&config, &e->runtime));
  TRY(minimal_create(e->runtime, &e->model)); /* its activations, and where cgr's buffers are */
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = record, capture.engine = e;
  TRY(cgr_runtime_warmup(e->runtime, &capture));    /* loads the engine's kernels, which a capture may not do */
  return cgr_runtime_capture(e->runtime, &capture); /* a graph for each size of step */
}

static cgr_status show(const struct engine *e, cgr_mark mark) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  TRY(cgr_step_wait(e->runtime, mark, -1, &result));
  minimal_print(result.tokens, 1);
  return CGR_OK;
}

/* Each step is launched before the host waits for the previous one, whose token is already on the device. */
static cgr_status generate(struct engine *e, const char *text) {
  int32_t row, prompt[MAX_TOKENS], length = minimal_tokens(text, prompt), pages = 0, steps = 0, replays = 0;
  minimal_print(prompt, length);
  cgr_batch batch = CGR_BATCH_INIT; /* the prompt first */
  batch.num_requests = 1, batch.rows = &row, batch.query_lens = &length, batch.tokens = prompt;
  cgr_step step = CGR_STEP_INIT;
  TRY(cgr_request_open(e->runtime, 1, &row));
  for (int32_t tokens = length; tokens <= MAX_SEQ_LEN; tokens++) {
    const cgr_mark before = step.mark;
    for (; pages * PAGE_SIZE < tokens; pages++) /* room for the step's tokens; all pages are this request's, from 2 on */
      TRY(cgr_request_set_pages(e->runtime, row, 0, pages, &(int32_t){ 2 + pages }, 1));
    TRY(cgr_step_prepare(e->runtime, &batch, &step));
    TRY(cgr_step_launch(e->runtime, &step, e->stream));
    if (before.seq)
      TRY(show(e, before));
    steps++, replays += step.key.kind != CGR_KIND_NONE;
    batch.query_lens = batch.tokens = NULL; /* after the prompt: one token, which is on the device */
  }
  TRY(show(e, step.mark));
  printf("\n%d steps, %d of them graph replays\n", steps, replays);
  return cgr_request_close(e->runtime, row);
}

static cgr_status run(const char *device, const char *text) { /* a failure ends the process, which frees all */
  struct engine e = { 0 };
  TRY(start(&e, device));
  TRY(generate(&e, text));
  TRY(cgr_runtime_destroy(e.runtime));
  TRY(minimal_destroy(&e.model));
  TRY(cgr_memory_free(e.device, e.cache));
  TRY(cgr_stream_destroy(e.device, e.stream));
  return cgr_device_close(e.device);
}

int main(int argc, char **argv) {
  if (minimal_help("minimal", argc, argv) || run(argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : "graphs g") == CGR_OK)
    return 0;
  fprintf(stderr, "minimal: %s\n", cgr_last_message());
  return 1;
}
