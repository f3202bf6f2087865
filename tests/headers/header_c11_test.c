/* The public headers in C11 with -pedantic: what the body tests, and designated initialisers as a user writes them. */
#include "cgr/cgr.h"

#include <stdbool.h>

#include "tests/headers/body.h"
#include "tests/headers/headers.h"

#define DECLARE(header) int header##_first_in_c11(void);
PUBLIC_HEADERS(DECLARE)
#undef DECLARE

static int test_first(void) {
  const int before = check_failures;
#define CHECK_FIRST(header) CHECK(header##_first_in_c11());
  PUBLIC_HEADERS(CHECK_FIRST)
#undef CHECK_FIRST
  return check_failures - before;
}

/* ------------------------------------------------------------------------------------------------ designated initialisers */

static const cgr_group shared_group = { .size = sizeof(cgr_group), .page_size = 16, .num_pages = WORLD_PAGES };

static cgr_status record_twice(cgr_recorder *recorder, void *engine) {
  const world *w = engine;
  cgr_attention a = { .size = sizeof a, .layer = 0, .q = w->attention.q, .k = w->attention.k, .v = w->attention.v };
  a.out = w->attention.out;
  return cgr_record_attention(recorder, &a);
}

static void run_one_step(world *w, cgr_runtime *runtime) {
  int32_t row = -1, pages[] = { 3 };
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = { .size = sizeof result };
  CHECK_OK(cgr_runtime_capture(runtime, &(cgr_capture){ .size = sizeof(cgr_capture), .record = record_twice, .engine = w }));
  CHECK_OK(cgr_request_open(runtime, 1, &row));
  CHECK_OK(cgr_request_set_pages(runtime, row, 0, 0, pages, 1));
  const cgr_batch batch = { .size = sizeof batch, .num_requests = 1, .rows = &row, .tokens = (const int32_t[]){ 7 } };
  CHECK_OK(cgr_step_prepare(runtime, &batch, &step));
  CHECK_OK(cgr_step_launch(runtime, &step, w->stream));
  CHECK_OK(cgr_step_wait(runtime, step.mark, -1, &result));
  CHECK(result.num_requests == 1 && result.rows[0] == row && result.tags[0] == 1 && result.guard.error == CGR_GUARD_NONE);
  const cgr_key full = { .kind = CGR_KIND_FULL, .num_tokens = 1, .num_requests = 1, .query_len = 1 };
  CHECK(memcmp(&step.key, &full, sizeof full) == 0);
}

static int test_designated(void) {
  const int before = check_failures;
  world w;
  world_open(&w);
  cgr_runtime *runtime = NULL;
  const cgr_layer layers[] = { {
      .size = sizeof(cgr_layer),
      .num_q_heads = 1,
      .num_kv_heads = 1,
      .head_dim = WORLD_DIM,
      .k = w.layers[0].k,
      .v = { .base = w.memory + WORLD_STRETCH,
             .dtype = CGR_DTYPE_FP32,
             .stride_page = 16 * WORLD_DIM,
             .stride_token = WORLD_DIM,
             .stride_head = WORLD_DIM },
  } };
  const cgr_config config = {
    .size = sizeof config,
    .magic = CGR_CONFIG_MAGIC,
    .version = CGR_VERSION,
    .device_handle = w.device,
    .groups = &shared_group,
    .num_groups = 1,
    .layers = layers,
    .num_layers = 1,
    .buffers = &(cgr_buffer_decl){ .size = sizeof(cgr_buffer_decl),
                                   .dimension = CGR_DIMENSION_REQUESTS,
                                   .dtype = CGR_DTYPE_FP32,
                                   .name = "temperature" },
    .num_buffers = 1,
    .max_requests = 1,
    .max_tokens = 8,
    .max_seq_len = 64,
    .decode_buckets = (const int32_t[]){ 1 },
    .num_decode_buckets = 1,
  };
  CHECK_OK(cgr_runtime_create(&config, &runtime));
  run_one_step(&w, runtime);
  CHECK_OK(cgr_runtime_destroy(runtime));
  world_close(&w);
  return check_failures - before;
}

/* ------------------------------------------------------------------------------------------------------------------ parts */

int main(void) {
  static const struct {
    const char *what;
    int (*test)(void);
  } parts[] = {
#define PART(name, what) { what, test_##name },
    CGR_TEST_PARTS(PART)
#undef PART
        { "each header first in a translation unit", test_first },
    { "designated initialisers", test_designated },
  };
  int failures = 0;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    const int failed = parts[i].test();
    printf("%s: %d checks failed\n", parts[i].what, failed);
    failures += failed;
  }
  return failures ? 1 : 0;
}
