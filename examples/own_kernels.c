/* An engine that has attention kernels of its own, as a backend, and keeps its page table on the device. It continues two texts
 * that way, then again with cgr's kernels and cgr's table: the letters have to be the same.
 *     own_kernels [DEVICE]        DEVICE: host, cuda or cuda:N, the best there is by default
 * What is the same as in minimal.c is not explained again. */
#include <cgr/cgr.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "minimal_model.h"
#include "own_attention.h"

enum { LAYERS = 2, DIM = MINIMAL_HEAD_DIM, PAGE_SIZE = 16, MAX_TOKENS = MINIMAL_TOKENS, MAX_SEQ_LEN = 64 };
enum { REQUESTS = 2, LETTERS = 50, ROW_PAGES = MAX_SEQ_LEN / PAGE_SIZE, PAGES = 2 + REQUESTS * ROW_PAGES };
enum { KV_BYTES = PAGES * 2 * PAGE_SIZE * DIM * 2 }; /* of a layer */

struct engine {
  cgr_device *device;
  cgr_runtime *runtime;
  cudaStream_t stream;
  void *cache;
  minimal_model model;
  cgr_layer layers[LAYERS];
  bool own;                               /* kernels and page table */
  own_attention attention;                /* what is the same in all launches */
  void *page_table;                       /* on the device: [REQUESTS + 1][ROW_PAGES], the last row is for padding */
  int32_t pages[REQUESTS + 1][ROW_PAGES]; /* its copy on the host, from which it is written */
};

struct outcome {
  char text[REQUESTS][LETTERS + 1];
  int replays;
};

/* A FULL graph can hold these kernels for any batch: nothing that is launched depends on lengths. */
static cgr_graph_support support(void *context, const cgr_device_info *device, const cgr_group *group) {
  (void)context, (void)device, (void)group;
  return CGR_SUPPORT_ALWAYS;
}

/* One layer's attention, in place of cgr's kernel: k and v of the step are already in the cache. */
static cgr_status attend(void *context, cgr_recorder *recorder, const cgr_attention *call) {
  const struct engine *e = context;
  own_attention attention = e->attention;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  TRY(cgr_record_get_info(recorder, &info));
  attention.q = call->q.data, attention.out = call->out.data;
  attention.k = e->layers[call->layer].k, attention.v = e->layers[call->layer].v;
  attention.num_requests = info.num_requests, attention.num_tokens = info.num_tokens;
  return own_attention_enqueue(&attention, info.stream);
}

/* The addresses of planned buffers are fixed while the runtime lives. The kernels read page numbers from the engine's table. */
static cgr_status prepare_attention(struct engine *e) {
  static const cgr_buffer buffers[3] = { CGR_BUFFER_QUERY_START_LOC, CGR_BUFFER_SEQ_LENS, CGR_BUFFER_REQUEST_ROWS };
  own_attention *a = &e->attention;
  const int32_t **const addresses[3] = { &a->query_start_loc, &a->seq_lens, &a->request_rows };
  for (int i = 0; i < 3; i++) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    TRY(cgr_buffer_get(e->runtime, NULL, buffers[i], 0, &view));
    *addresses[i] = view.data;
  }
  a->device = e->device, a->kind = e->model.kind, a->ordinal = e->model.ordinal;
  a->page_table = e->page_table, a->page_table_stride = ROW_PAGES, a->page_size = PAGE_SIZE, a->scale = MINIMAL_SCALE;
  return CGR_OK;
}

static cgr_status open_device(struct engine *e, const char *device) {
  TRY(cgr_device_open(device, NULL, &e->device));
  TRY(cgr_stream_create(e->device, &e->stream));
  TRY(cgr_memory_alloc(e->device, LAYERS * KV_BYTES, &e->cache));
  TRY(cgr_fill(e->device, e->cache, 0, LAYERS * KV_BYTES, e->stream));
  TRY(cgr_memory_alloc(e->device, sizeof e->pages, &e->page_table));
  TRY(cgr_fill(e->device, e->page_table, 0, sizeof e->pages, e->stream)); /* page 0, the read-trash page, everywhere */
  return cgr_stream_synchronize(e->device, e->stream); /* the runtime's own stream does not wait for this one */
}

static cgr_status create_runtime(struct engine *e) {
  cgr_backend backend = CGR_BACKEND_INIT; /* no `check`: the kernels support these layers */
  backend.name = "own", backend.context = e, backend.support = support, backend.record = attend;
  cgr_group group = CGR_GROUP_INIT;
  group.page_size = PAGE_SIZE, group.num_pages = PAGES;
  group.page_table = e->own ? e->page_table : NULL, group.page_table_stride = e->own ? ROW_PAGES : 0; /* NULL: cgr's own */
  for (int i = 0; i < LAYERS; i++) {
    cgr_layer *l = &e->layers[i];
    *l = (cgr_layer)CGR_LAYER_INIT;
    l->num_q_heads = l->num_kv_heads = 1, l->head_dim = DIM, l->scale = MINIMAL_SCALE;
    l->backend = e->own ? 1 : 0; /* the first of config.backends, or cgr's */
    TRY(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, (char *)e->cache + i * KV_BYTES, CGR_DTYPE_BF16, PAGE_SIZE, 1, DIM, &l->k, &l->v));
  }
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = e->device;
  config.groups = &group, config.num_groups = 1, config.layers = e->layers, config.num_layers = LAYERS;
  config.backends = &backend, config.num_backends = 1;
  config.max_requests = REQUESTS, config.max_tokens = MAX_TOKENS, config.max_seq_len = MAX_SEQ_LEN;
  TRY(cgr_runtime_create(&config, &e->runtime));
  TRY(minimal_create(e->runtime, &e->model));
  TRY(prepare_attention(e));
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = minimal_record, capture.engine = &e->model; /* the same for both: layers name their backend */
  TRY(cgr_runtime_warmup(e->runtime, &capture));               /* loads the engine's kernels, which no capture may do */
  return cgr_runtime_capture(e->runtime, &capture);
}

/* Makes room for `tokens` tokens in a row that already has its first *count pages. The pages of the rows alternate. An engine's
 * table is written in stream order, before the step that needs it. */
static cgr_status make_room(struct engine *e, int32_t row, int32_t tokens, int32_t *count) {
  for (; *count * PAGE_SIZE < tokens; ++*count) {
    int32_t *page = &e->pages[row][*count];
    *page = 2 + *count * REQUESTS + row;
    if (e->own)
      TRY(cgr_copy(e->device, (int32_t *)e->page_table + (page - e->pages[0]), page, sizeof *page, e->stream));
    else
      TRY(cgr_request_set_pages(e->runtime, row, 0, *count, page, 1));
  }
  return CGR_OK;
}

/* Both texts in one batch: first the prompts, one after the other, then one letter of each per step. */
static cgr_status generate(struct engine *e, const char *const *texts, struct outcome *outcome) {
  int32_t rows[REQUESTS], lengths[REQUESTS], counts[REQUESTS] = { 0 }, prompts[REQUESTS * MAX_TOKENS], total = 0;
  for (int32_t i = 0; i < REQUESTS; i++) {
    TRY(cgr_request_open(e->runtime, (uint64_t)i, &rows[i]));
    lengths[i] = minimal_tokens(texts[i], prompts + total);
    total += lengths[i];
  }
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = REQUESTS, batch.rows = rows, batch.query_lens = lengths, batch.tokens = prompts;
  for (int32_t n = 0; n < LETTERS; n++) {
    cgr_step step = CGR_STEP_INIT;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    for (int32_t i = 0; i < REQUESTS; i++)
      TRY(make_room(e, rows[i], lengths[i] + n, &counts[i]));
    TRY(cgr_step_prepare(e->runtime, &batch, &step));
    TRY(cgr_step_launch(e->runtime, &step, e->stream));
    TRY(cgr_step_wait(e->runtime, step.mark, -1, &result));
    for (int32_t i = 0; i < REQUESTS; i++)
      outcome->text[result.tags[i]][n] = minimal_letter(result.tokens[i]);
    outcome->replays += step.key.kind != CGR_KIND_NONE;
    batch.query_lens = batch.tokens = NULL;
  }
  for (int32_t i = 0; i < REQUESTS; i++)
    TRY(cgr_request_close(e->runtime, rows[i]));
  return CGR_OK;
}

static cgr_status run(const char *device, bool own, struct outcome *outcome) { /* a failure ends the process, which frees all */
  static const char *const texts[REQUESTS] = { "graphs g", "buzz" };
  struct engine e = { .own = own };
  TRY(open_device(&e, device));
  TRY(create_runtime(&e));
  TRY(generate(&e, texts, outcome));
  TRY(cgr_runtime_destroy(e.runtime));
  TRY(minimal_destroy(&e.model));
  TRY(cgr_memory_free(e.device, e.page_table));
  TRY(cgr_memory_free(e.device, e.cache));
  TRY(cgr_stream_destroy(e.device, e.stream));
  return cgr_device_close(e.device);
}

int main(int argc, char **argv) {
  if (argc > 2)
    return fputs("own_kernels: expected one argument at most, the device\n", stderr), 1;
  struct outcome own = { 0 }, native = { 0 };
  if (run(argv[1], true, &own) != CGR_OK || run(argv[1], false, &native) != CGR_OK) {
    fprintf(stderr, "own_kernels: %s\n", cgr_last_message());
    return 1;
  }
  const bool same = memcmp(own.text, native.text, sizeof own.text) == 0;
  printf("%s\n%s\n%d steps, %d of them graph replays\n", own.text[0], own.text[1], LETTERS, own.replays);
  printf("cgr's kernels and page table give %s letters, in %d replays\n", same ? "the same" : "other", native.replays);
  return !same;
}
