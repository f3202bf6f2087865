/* An engine in eight steps, which docs/tutorial.md explains. The model is that of minimal.c.
 *     cc tutorial.c minimal_model.c $(pkg-config --cflags --libs cgr) -lm -o tutorial      (the host device alone)
 *     tutorial [DEVICE [STEP [TRACE]]]   STEP: 1 to 8, all by default; TRACE: a file for the trace of step 7 */
#include <cgr/cgr.h>
#include <cgr/names.h>
#include <cgr/tracing.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "minimal_model.h"
enum { LAYERS = 2, DIM = MINIMAL_HEAD_DIM, PAGE_SIZE = 16, MAX_PAGES = 16, MAX_TOKENS = MINIMAL_TOKENS, MAX_SEQ_LEN = 64 };
enum { KV_BYTES = MAX_PAGES * 2 * PAGE_SIZE * DIM * 2, REQUESTS = 4 };
#define TAKEN UINT64_MAX

struct request {
  int32_t row, num_tokens, tokens[MAX_SEQ_LEN + 1]; /* that the host knows: the prompt, then what was sampled */
  int32_t prompt, computed, now, left;              /* tokens: of the prompt, in the cache, of this step, to be sampled */
  int32_t num_pages, pages[MAX_SEQ_LEN / PAGE_SIZE];
  bool joined, decoding; /* it is in the standing batch; and there it is set to one token a step */
};

struct engine {
  const char *title;                                            /* of a step of the tutorial */
  cgr_status (*run)(struct engine *e);                          /* what it does */
  cgr_status (*fill)(struct engine *e, cgr_batch *batch);       /* what serve launches */
  int32_t num_requests, num_pages, budget, ahead, mode, timing; /* budget: tokens of a batch; ahead: step 5 */
  const char *name;                                             /* of the device */
  FILE *trace;
  cgr_device *device;
  cgr_runtime *runtime;
  cudaStream_t stream;
  void *cache;
  minimal_model model;
  uint64_t last_use[MAX_PAGES]; /* of a free page: number of the last step that used it; of others TAKEN */
  struct request requests[REQUESTS], *queue[REQUESTS], *by_row[REQUESTS];
  int32_t num_queued, num_running; /* the queue begins with the oldest request; the first num_running are served */
  cgr_mark in_flight;              /* the step whose tokens are still to be collected; seq 0: none */
  bool full;                       /* a request was preempted, and since then none has left */
  int32_t steps, replays, overlapped, preempted, swaps;
};

static cgr_status start(struct engine *e) {
  TRY(cgr_device_open(e->name, NULL, &e->device));
  TRY(cgr_stream_create(e->device, &e->stream));
  TRY(cgr_memory_alloc(e->device, LAYERS * KV_BYTES, &e->cache));
  TRY(cgr_fill(e->device, e->cache, 0, LAYERS * KV_BYTES, e->stream));
  TRY(cgr_stream_synchronize(e->device, e->stream));
  cgr_group group = CGR_GROUP_INIT;
  group.page_size = PAGE_SIZE, group.num_pages = e->num_pages;
  cgr_layer layers[LAYERS] = { CGR_LAYER_INIT, CGR_LAYER_INIT };
  for (int i = 0; i < LAYERS; i++) {
    cgr_layer *l = &layers[i];
    l->num_q_heads = l->num_kv_heads = 1, l->head_dim = DIM, l->scale = MINIMAL_SCALE;
    TRY(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, (char *)e->cache + i * KV_BYTES, CGR_DTYPE_BF16, PAGE_SIZE, 1, DIM, &l->k, &l->v));
  }
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = e->device, config.groups = &group, config.num_groups = 1, config.layers = layers;
  config.num_layers = LAYERS, config.max_requests = REQUESTS, config.max_tokens = MAX_TOKENS, config.max_seq_len = MAX_SEQ_LEN;
  config.graph_mode = e->mode, config.timing = e->timing;
  TRY(cgr_runtime_create(&config, &e->runtime));
  TRY(minimal_create(e->runtime, &e->model));
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = minimal_record, capture.engine = &e->model;
  TRY(cgr_runtime_warmup(e->runtime, &capture));
  return cgr_runtime_capture(e->runtime, &capture);
}

/* Step 8. What was made last goes first. Each line frees what exists: this also stops an engine whose start has failed. */
static cgr_status stop(struct engine *e) {
  TRY(cgr_runtime_destroy(e->runtime)); /* waits for steps in flight, drops a prepared one. CGR_NOT_READY: call it again */
  if (e->model.q)
    TRY(minimal_destroy(&e->model)); /* the graphs held its addresses */
  if (e->cache)
    TRY(cgr_memory_free(e->device, e->cache));
  if (e->stream)
    TRY(cgr_stream_destroy(e->device, e->stream));
  return cgr_device_close(e->device); /* refused while anything made from the device exists */
}

/* Step 1. A free page that no step in flight uses, or 0, which is reserved: there is none. */
static int32_t take_page(struct engine *e) {
  uint64_t completed = 0;
  cgr_status status = cgr_runtime_completed(e->runtime, NULL, &completed);
  for (int32_t page = 2; status == CGR_OK && page < e->num_pages; page++)
    if (e->last_use[page] <= completed) {
      e->last_use[page] = TAKEN;
      return page;
    }
  return 0;
}

static cgr_status give_pages_back(struct engine *e, struct request *r) {
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  TRY(cgr_request_get_info(e->runtime, r->row, &info)); /* a closed row has `last`, too */
  while (r->num_pages > 0)
    e->last_use[r->pages[--r->num_pages]] = info.last.seq;
  return CGR_OK;
}

static cgr_status collect(struct engine *e, cgr_mark *mark) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  if (mark->seq == 0)
    return CGR_OK;
  TRY(cgr_step_wait(e->runtime, *mark, -1, &result));
  mark->seq = 0;
  for (int32_t i = 0; i < result.num_requests; i++) {
    struct request *r = &e->requests[result.tags[i]];
    if (result.num_tokens[i] > 0)
      r->tokens[r->num_tokens++] = result.tokens[i];
  }
  return CGR_OK;
}

/* Step 4. The request gives its pages back and waits. When it comes back, all its tokens are its prompt. */
static cgr_status preempt(struct engine *e, struct request *r) {
  TRY(cgr_standing_remove(e->runtime, NULL, r->row));
  TRY(cgr_request_set_length(e->runtime, r->row, 0));
  TRY(cgr_request_drop_pages(e->runtime, r->row, 0, 0, r->num_pages));
  TRY(give_pages_back(e, r));
  r->prompt = r->num_tokens, r->computed = r->now = 0, r->joined = r->decoding = false;
  e->num_running--, e->preempted++, e->full = true;
  return CGR_OK;
}

/* Step 1. Pages for what the request has in the cache and for what this step adds. */
static cgr_status make_room(struct engine *e, struct request *r) {
  while (r->num_pages * PAGE_SIZE < r->computed + r->now) {
    const int32_t page = take_page(e);
    if (page != 0) {
      TRY(cgr_request_set_pages(e->runtime, r->row, 0, r->num_pages, &page, 1));
      r->pages[r->num_pages++] = page;
    } else if (e->in_flight.seq != 0) {
      TRY(collect(e, &e->in_flight)); /* step 5: it may use a free page, and it samples a token that preempt needs */
    } else {
      TRY(preempt(e, e->queue[e->num_running - 1])); /* step 4: the youngest */
    }
  }
  return CGR_OK;
}

static cgr_status open_requests(struct engine *e) {
  static const char *const texts[REQUESTS] = { "graphs g", "buzz", "one twone twone", "abcdefghijklmnopqrstuvwxyzabc" };
  static const int32_t letters[REQUESTS] = { 30, 5, 40, 32 };
  for (int32_t i = 0; i < e->num_requests; i++) {
    struct request *r = e->queue[e->num_queued++] = &e->requests[i];
    r->num_tokens = r->prompt = minimal_tokens(texts[i], r->tokens), r->left = letters[i];
    TRY(cgr_request_open(e->runtime, (uint64_t)i, &r->row)); /* i is the tag, which results bring back */
    e->by_row[r->row] = r;
  }
  return CGR_OK;
}

/* Step 6. After any status but CGR_OK the step does not count, and no change is lost. */
static cgr_status launch(struct engine *e, const cgr_batch *batch) {
  cgr_step step = CGR_STEP_INIT;
  cgr_status status = cgr_step_prepare(e->runtime, batch, &step);
  if (status == CGR_ERROR_BUSY) /* as many steps are in flight as the ring holds */
    status = cgr_step_prepare_wait(e->runtime, batch, &step, -1, e->stream);
  if (status == CGR_OK)
    status = cgr_step_launch(e->runtime, &step, e->stream);
  if (status != CGR_OK && status != CGR_ERROR_DEAD && step.state == CGR_STEP_PREPARED)
    TRY(cgr_step_cancel(e->runtime, &step)); /* the launch was refused before anything was enqueued */
  if (status != CGR_OK)
    return status;
  e->overlapped += e->in_flight.seq != 0, e->in_flight = step.mark, e->steps++, e->replays += step.key.kind != CGR_KIND_NONE;
  for (int32_t i = 0; i < e->num_running; i++) {
    struct request *r = e->queue[i];
    r->computed += r->now, r->left -= r->computed >= r->prompt; /* only the last chunk of a prompt gives a token */
  }
  return CGR_OK;
}

/* Requests that need no other step leave. */
static cgr_status finish(struct engine *e) {
  for (int32_t i = e->num_running - 1; i >= 0; i--) {
    struct request *r = e->queue[i];
    if (r->left > 0)
      continue;
    if (r->joined)
      TRY(cgr_standing_remove(e->runtime, NULL, r->row));
    TRY(cgr_request_close(e->runtime, r->row));
    TRY(give_pages_back(e, r));
    e->num_running--, e->num_queued--, e->full = false;
    for (int32_t j = i; j < e->num_queued; j++)
      e->queue[j] = e->queue[j + 1];
  }
  return CGR_OK;
}

static cgr_status serve(struct engine *e) {
  while (e->num_queued > 0) {
    cgr_batch batch = CGR_BATCH_INIT;
    TRY(e->fill(e, &batch));
    cgr_mark before = e->in_flight;
    TRY(launch(e, &batch));
    TRY(collect(e, e->ahead ? &before : &e->in_flight)); /* step 5: those of the step before, while this one runs */
    TRY(finish(e));
  }
  return collect(e, &e->in_flight);
}

/* Step 2. Each request has a token in every step, and prompts share the rest of the budget, the oldest first. */
static int32_t tokens_now(const struct request *r, int32_t *rest) {
  int32_t more = r->computed < r->prompt ? r->prompt - r->computed - 1 : 0;
  more = more < *rest ? more : *rest;
  *rest -= more;
  return 1 + more;
}

static uint32_t flags_now(const struct request *r) { return r->computed + r->now < r->prompt ? CGR_REQUEST_PARTIAL : 0; }

static cgr_status fill_whole(struct engine *e, cgr_batch *batch) {
  static int32_t rows[REQUESTS], query_lens[REQUESTS], tokens[MAX_TOKENS];
  static uint32_t flags[REQUESTS];
  int32_t rest = e->budget - e->num_queued, total = 0;
  for (int32_t i = 0; i < e->num_queued; i++) {
    struct request *r = e->queue[i];
    r->now = tokens_now(r, &rest);
    TRY(make_room(e, r));
    rows[i] = r->row, query_lens[i] = r->now, flags[i] = flags_now(r);
    for (int32_t j = 0; j < r->now; j++) /* the device has what it sampled; a prompt comes from the host */
      tokens[total++] = r->computed < r->prompt ? r->tokens[r->computed + j] : CGR_TOKEN_LAST;
  }
  batch->num_requests = e->num_running = e->num_queued, batch->rows = rows;
  batch->query_lens = query_lens, batch->tokens = tokens, batch->flags = flags;
  return CGR_OK;
}

/* Step 3. When a request leaves, the last one takes its place, even if it is a prompt; some kernels need decodes first. */
static cgr_status put_decodes_first(struct engine *e) {
  const int32_t *rows = NULL;
  for (int32_t i = 0, decodes = 0, count = 0;; i++) {
    TRY(cgr_standing_rows(e->runtime, NULL, &rows, &count)); /* valid until the next edit */
    if (i == count)
      return CGR_OK;
    if (!e->by_row[rows[i]]->decoding || decodes++ == i)
      continue;
    TRY(cgr_standing_swap(e->runtime, NULL, rows[decodes - 1], rows[i]));
    e->swaps++;
  }
}

/* Step 3. Prompts get their next chunk. A decode is set once: from then on it has a token in every step. */
static cgr_status fill_standing(struct engine *e, cgr_batch *batch) {
  for (; !e->full && e->num_running < e->num_queued; e->num_running++) {
    struct request *r = e->queue[e->num_running];
    TRY(cgr_standing_add(e->runtime, NULL, r->row, 0, NULL, 0)); /* without tokens yet */
    r->joined = true;
  }
  int32_t rest = e->budget - e->num_running;
  for (int32_t i = 0; i < e->num_running; i++) {
    struct request *r = e->queue[i];
    r->now = tokens_now(r, &rest);
    TRY(make_room(e, r));
    if (r->computed < r->prompt && r->joined) /* else step 4 has preempted it */
      TRY(cgr_standing_update(e->runtime, NULL, r->row, r->now, r->tokens + r->computed, flags_now(r)));
    else if (!r->decoding && r->joined)
      TRY(cgr_standing_update(e->runtime, NULL, r->row, 1, NULL, 0));
    r->decoding = r->computed >= r->prompt;
  }
  batch->num_requests = CGR_BATCH_STANDING; /* and no arrays */
  return put_decodes_first(e);
}

static void tell(const char *what, cgr_status status) {
  printf("%s: %s\n", what, status == CGR_OK ? "CGR_OK" : cgr_last_message());
}

static atomic_int gate;
static void wait_at_gate(const void *args) {
  (void)args;
  while (!atomic_load(&gate))
    usleep(100);
}

/* Step 6. */
static cgr_status fail(struct engine *e) {
  int32_t row = 0, token = 7;
  cudaStream_t stream = e->stream;
  cgr_step step = CGR_STEP_INIT;
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = 1, batch.rows = &row, batch.tokens = &token;
  TRY(cgr_request_open(e->runtime, 0, &row));
  tell("no page", launch(e, &batch));
  TRY(cgr_request_set_pages(e->runtime, row, 0, 0, &(int32_t){ take_page(e) }, 1));
  e->stream = NULL;
  tell("no stream", launch(e, &batch));
  e->stream = stream;
  tell("both", launch(e, &batch));
  TRY(collect(e, &e->in_flight));
  cgr_status status = cgr_launch_host(e->device, wait_at_gate, NULL, 0, e->stream); /* the device is busy with something else */
  while (status == CGR_OK && (status = cgr_step_prepare(e->runtime, &batch, &step)) == CGR_OK)
    status = cgr_step_launch(e->runtime, &step, e->stream);
  tell("one step too many", status);
  atomic_store(&gate, 1);
  tell("it waits", launch(e, &batch));
  fflush(stdout);
  const pid_t child = fork(); /* no device survives this: the child's runtime is dead, as after a fault of the GPU */
  if (child == 0) {
    tell("in a fork", launch(e, &batch));
    tell("stopped", stop(e));
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  return CGR_OK;
}

/* Step 7. */
static cgr_status observe(struct engine *e) {
  static char text[1 << 20];
  size_t length = 0;
  cgr_stats stats = CGR_STATS_INIT;
  TRY(serve(e));
  TRY(cgr_runtime_stats(e->runtime, &stats));
  for (int kind = 0; kind < 3; kind++)
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
      if (stats.by_reason[kind][reason] > 0)
        printf("%s, %s: %d steps\n", cgr_graph_kind_name((cgr_graph_kind)kind), cgr_reason_name((cgr_reason)reason),
               (int)stats.by_reason[kind][reason]);
  printf("%d tokens, %d with padding\n", (int)stats.real_tokens, (int)stats.padded_tokens);
  TRY(cgr_runtime_trace(e->runtime, text, sizeof text, &length)); /* whole if length < sizeof text */
  if (e->trace)
    fputs(text, e->trace);
  return CGR_OK;
}

/* Step 8. */
static cgr_status stop_early(struct engine *e) {
  struct engine other = { .name = e->name, .num_pages = 2 };
  cgr_batch batch = CGR_BATCH_INIT;
  tell("a pool of 2 pages", start(&other));
  tell("stopped", stop(&other));
  tell("the cache first", cgr_memory_free(e->device, e->cache));
  TRY(e->fill(e, &batch));
  return launch(e, &batch); /* nothing waits for it before main stops the engine */
}

static const struct engine steps[] = {
  { .title = "pages from a pool", .run = serve, .fill = fill_whole, .num_requests = 3, .num_pages = 16, .budget = MAX_TOKENS },
  { .title = "prompts in chunks", .run = serve, .fill = fill_whole, .num_requests = 4, .num_pages = 16, .budget = 8 },
  { .title = "the standing batch", .run = serve, .fill = fill_standing, .num_requests = 4, .num_pages = 16, .budget = 8 },
  { .title = "preemption", .run = serve, .fill = fill_standing, .num_requests = 4, .num_pages = 8, .budget = 8 },
  { .title = "one step ahead", .run = serve, .fill = fill_standing, .num_requests = 4, .num_pages = 8, .budget = 8, .ahead = 1 },
  { .title = "errors", .run = fail, .num_pages = 8 },
  { .title = "observing",
    .run = observe,
    .fill = fill_standing,
    .num_requests = 4,
    .num_pages = 16,
    .budget = 8,
    .ahead = 1,
    .mode = CGR_MODE_FULL_DECODE_ONLY,
    .timing = CGR_TIMING_PHASES },
  { .title = "shutdown", .run = stop_early, .fill = fill_standing, .num_requests = 4, .num_pages = 16, .budget = 8 },
};

static cgr_status run(struct engine *e) {
  TRY(start(e));
  TRY(open_requests(e));
  TRY(e->run(e));
  for (int32_t i = 0; i < e->num_requests; i++, putchar('\n'))
    for (int32_t j = 0; j < e->requests[i].num_tokens; j++)
      putchar(minimal_letter(e->requests[i].tokens[j]));
  printf("%d steps, %d replays, %d preempted, %d swapped\n", e->steps, e->replays, e->preempted, e->swaps);
  if (e->ahead)
    printf("%d steps were launched ahead\n", e->overlapped);
  return CGR_OK;
}

int main(int argc, char **argv) {
  const int count = sizeof steps / sizeof *steps, only = argc > 2 ? atoi(argv[2]) : 0;
  if (argc > 4 || only > count || (argc > 2 && only < 1))
    return fputs("tutorial: expected [DEVICE [STEP [TRACE]]], with a STEP of 1 to 8\n", stderr), 1;
  FILE *trace = argc > 3 ? fopen(argv[3], "w") : NULL;
  if (argc > 3 && !trace)
    return perror(argv[3]), 1;
  for (int i = only ? only - 1 : 0; i < (only ? only : count); i++) {
    struct engine e = steps[i];
    e.name = argc > 1 ? argv[1] : NULL, e.trace = trace;
    printf("%d. %s\n", i + 1, e.title);
    const cgr_status status = run(&e);
    if (status != CGR_OK)
      fprintf(stderr, "tutorial: %s\n", cgr_last_message());
    if (stop(&e) != CGR_OK || status != CGR_OK)
      return 1;
  }
  return 0;
}
