/* The steps of test_cost.py in C: prints the nanoseconds of a step's calls, the median of many.
 *   cost STEPS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cgr/cgr.h"

enum { REQUESTS = 64, EDITS = 4, PAGE = 16, PAGES = 64 };

#define TRY(call)                                  \
  do {                                             \
    if ((call) != CGR_OK) {                        \
      fprintf(stderr, "%s\n", cgr_last_message()); \
      exit(1);                                     \
    }                                              \
  } while (0)

static cgr_status record(cgr_recorder *recorder, void *engine) {
  (void)recorder, (void)engine;
  return CGR_OK;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 2000;
  double *times = malloc((size_t)steps * sizeof *times);
  cgr_device *device = NULL;
  cudaStream_t stream = NULL;
  cgr_runtime *runtime = NULL;
  cgr_device_config device_config = CGR_DEVICE_CONFIG_INIT;
  device_config.host_schedule = CGR_SCHEDULE_LATEST; /* the wait executes the step: launching wakes no thread */
  TRY(cgr_device_open("host", &device_config, &device));
  TRY(cgr_stream_create(device, &stream));
  cgr_group group = CGR_GROUP_INIT;
  group.num_pages = 2 + REQUESTS * PAGES;
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = device, config.groups = &group, config.num_groups = 1, config.max_requests = REQUESTS;
  config.max_tokens = REQUESTS, config.max_seq_len = PAGES * PAGE;
  TRY(cgr_runtime_create(&config, &runtime));
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = record;
  TRY(cgr_runtime_capture(runtime, &capture));
  int32_t rows[REQUESTS], tokens[REQUESTS], edits[EDITS], firsts[EDITS], pages[EDITS];
  for (int32_t i = 0; i < REQUESTS; i++) {
    int32_t own[PAGES];
    for (int32_t p = 0; p < PAGES; p++)
      own[p] = 2 + i * PAGES + p;
    TRY(cgr_request_open(runtime, (uint64_t)i, &rows[i]));
    TRY(cgr_request_set_pages(runtime, rows[i], 0, 0, own, PAGES));
    tokens[i] = i;
  }
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  batch.num_requests = REQUESTS, batch.rows = rows, batch.tokens = tokens;
  for (int s = 0; s < steps; s++) {
    for (int32_t e = 0; e < EDITS; e++)
      edits[e] = rows[(s * EDITS + e) % REQUESTS], firsts[e] = PAGES - 1, pages[e] = 2 + edits[e] * PAGES + PAGES - 1;
    const double before = now();
    TRY(cgr_requests_set_pages(runtime, 0, EDITS, edits, firsts, NULL, pages));
    TRY(cgr_step_prepare(runtime, &batch, &step));
    TRY(cgr_step_launch(runtime, &step, stream));
    times[s] = now() - before;
    TRY(cgr_step_wait(runtime, step.mark, -1, NULL));
    if (s % 512 == 511)
      for (int32_t i = 0; i < REQUESTS; i++)
        TRY(cgr_request_set_length(runtime, rows[i], 0));
  }
  qsort(times, (size_t)steps, sizeof *times, compare);
  printf("%.0f\n", times[steps / 2]);
  TRY(cgr_runtime_destroy(runtime));
  TRY(cgr_stream_destroy(device, stream));
  free(times);
  return cgr_device_close(device) != CGR_OK;
}
