/* The steps of profiles/python_cost.py in C, in the same process: 64 requests, of which 4 get another page before each step, or
 * none. The program compiles this file and calls it by ctypes. What fails returns NULL or 0, and cgr_last_message says why. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cgr/cgr.h"

enum { REQUESTS = 64, EDITS = 4, PAGE = 16, PAGES = 64, FIRST_PAGE = 2 };

typedef struct steps {
  cgr_device *device;
  cudaStream_t stream;
  cgr_runtime *runtime;
  cgr_batch batch;
  cgr_step step;
  int32_t rows[REQUESTS], tokens[REQUESTS], edits[EDITS], firsts[EDITS], pages[EDITS];
  int32_t count;
} steps;

static cgr_status record(cgr_recorder *recorder, void *engine) {
  (void)recorder, (void)engine;
  return CGR_OK;
}

static cgr_status make_runtime(steps *s, const char *device) {
  cgr_device_config device_config = CGR_DEVICE_CONFIG_INIT;
  if (strcmp(device, "host") == 0)
    device_config.host_schedule = CGR_SCHEDULE_LATEST; /* the wait executes the step: launching wakes no thread */
  cgr_status status = cgr_device_open(device, &device_config, &s->device);
  if (status == CGR_OK)
    status = cgr_stream_create(s->device, &s->stream);
  cgr_group group = CGR_GROUP_INIT;
  group.num_pages = FIRST_PAGE + REQUESTS * (PAGES + 1); /* one of each request's is spare */
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = s->device, config.groups = &group, config.num_groups = 1, config.max_requests = REQUESTS;
  config.max_tokens = REQUESTS, config.max_seq_len = PAGES * PAGE;
  if (status == CGR_OK)
    status = cgr_runtime_create(&config, &s->runtime);
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = record;
  return status == CGR_OK ? cgr_runtime_capture(s->runtime, &capture) : status;
}

static cgr_status open_requests(steps *s) {
  cgr_status status = CGR_OK;
  for (int32_t i = 0; status == CGR_OK && i < REQUESTS; i++) {
    int32_t own[PAGES];
    for (int32_t p = 0; p < PAGES; p++)
      own[p] = FIRST_PAGE + i * (PAGES + 1) + p;
    status = cgr_request_open(s->runtime, (uint64_t)i, &s->rows[i]);
    if (status == CGR_OK)
      status = cgr_request_set_pages(s->runtime, s->rows[i], 0, 0, own, PAGES);
    s->tokens[i] = i;
  }
  return status;
}

void steps_close(steps *s) {
  cgr_runtime_destroy(s->runtime);
  if (s->stream)
    cgr_stream_destroy(s->device, s->stream);
  cgr_device_close(s->device);
  free(s);
}

steps *steps_open(const char *device) {
  steps *s = calloc(1, sizeof *s);
  if (s == NULL || (make_runtime(s, device) == CGR_OK && open_requests(s) == CGR_OK)) {
    if (s != NULL) {
      s->batch = (cgr_batch)CGR_BATCH_INIT, s->step = (cgr_step)CGR_STEP_INIT;
      s->batch.num_requests = REQUESTS, s->batch.rows = s->rows;
    }
    return s;
  }
  steps_close(s);
  return NULL;
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The last place of the next requests gets its other page. */
static void choose_pages(steps *s) {
  const int32_t round = s->count / (REQUESTS / EDITS);
  for (int32_t e = 0; e < EDITS; e++) {
    const int32_t i = (s->count * EDITS + e) % REQUESTS;
    s->edits[e] = s->rows[i], s->firsts[e] = PAGES - 1;
    s->pages[e] = FIRST_PAGE + i * (PAGES + 1) + PAGES - 1 + (round + 1) % 2;
  }
  s->count++;
}

/* One step from the requests' first token, so that the next ones find their last tokens on the device. */
static cgr_status start_again(steps *s) {
  cgr_status status = CGR_OK;
  for (int32_t i = 0; status == CGR_OK && i < REQUESTS; i++)
    status = cgr_request_set_length(s->runtime, s->rows[i], 0);
  s->batch.tokens = s->tokens;
  if (status == CGR_OK)
    status = cgr_step_prepare(s->runtime, &s->batch, &s->step);
  if (status == CGR_OK)
    status = cgr_step_launch(s->runtime, &s->step, s->stream);
  s->batch.tokens = NULL;
  return status == CGR_OK ? cgr_step_wait(s->runtime, s->step.mark, -1, NULL) : status;
}

static cgr_status run_step(steps *s, int edits, double *ns) {
  cgr_status status = CGR_OK;
  if (edits)
    choose_pages(s);
  const double before = now_ns();
  if (edits)
    status = cgr_requests_set_pages(s->runtime, 0, EDITS, s->edits, s->firsts, NULL, s->pages);
  if (status == CGR_OK)
    status = cgr_step_prepare(s->runtime, &s->batch, &s->step);
  if (status == CGR_OK)
    status = cgr_step_launch(s->runtime, &s->step, s->stream);
  *ns = now_ns() - before;
  return status == CGR_OK ? cgr_step_wait(s->runtime, s->step.mark, -1, NULL) : status;
}

/* Nanoseconds of the calls of each step, but the wait. At most PAGES * PAGE - 1 steps. 1: done. */
int steps_run(steps *s, int edits, int count, double *ns) {
  cgr_status status = start_again(s);
  for (int i = 0; status == CGR_OK && i < count; i++)
    status = run_step(s, edits, &ns[i]);
  return status == CGR_OK;
}
