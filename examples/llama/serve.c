#include "examples/llama/serve.h"

#include <stdio.h>

/* The ring is full, or more changes are pending than one slot carries: let the device catch up and send them ahead. Never in
 * the steady loop. */
static int make_room(llama_engine *e) {
  cgr_status status = cgr_runtime_flush(e->runtime, e->stream);
  if (status != CGR_OK && status != CGR_ERROR_BUSY)
    return llama_cgr(status, "cgr_runtime_flush");
  TRY_CGR(cgr_stream_synchronize(e->device, e->stream));
  return 0;
}

int llama_step(llama_engine *e, const cgr_batch *batch, cgr_step *step, double *prepare_time, double *launch_time) {
  double start = llama_now();
  cgr_status status = cgr_step_prepare(e->runtime, batch, step);
  for (int tries = 0; status == CGR_ERROR_BUSY && tries < 1000; tries++) {
    TRY(make_room(e));
    status = cgr_step_prepare(e->runtime, batch, step);
  }
  TRY(llama_cgr(status, "cgr_step_prepare"));
  double prepared = llama_now();
  TRY_CGR(cgr_step_launch(e->runtime, step, e->stream));
  *prepare_time = prepared - start;
  *launch_time = llama_now() - prepared;
  return 0;
}

static int collect(llama_engine *e, llama_scheduler *s, uint64_t seq, cgr_step_result *result) {
  *result = (cgr_step_result)CGR_STEP_RESULT_INIT;
  TRY_CGR(cgr_step_wait(e->runtime, seq, result));
  return llama_scheduler_completed(s, result->tokens);
}

/* Ten times a second at most. */
static void show(const llama_scheduler *s, uint64_t steps, double *shown) {
  if (llama_now() - *shown < 0.1)
    return;
  *shown = llama_now();
  fprintf(stderr, "\r%llu steps, %d running, %d waiting   ", (unsigned long long)steps, llama_scheduler_running(s),
          llama_scheduler_waiting(s));
  fflush(stderr);
}

/* Step N + 1 is prepared and launched before the tokens of step N are read: the device has them already, and the host needs
 * them only to show them and to find an end token. */
int llama_serve(llama_engine *e, llama_scheduler *s, llama_meter *meter, llama_logits *logits, int show_progress) {
  double start = llama_now(), shown = start, prepare_time, launch_time;
  uint64_t in_flight = 0, steps = 0; /* in_flight: number of the step whose tokens have not been read, or 0 */
  cgr_step_result result;
  for (;;) {
    llama_work work;
    cgr_step step = CGR_STEP_INIT;
    TRY(llama_scheduler_compose(s, &work));
    int runs = work.batch.num_requests > 0;
    if (!runs && !in_flight)
      break;
    if (runs) {
      TRY(llama_step(e, &work.batch, &step, &prepare_time, &launch_time));
      TRY(llama_meter_add(meter, work.phase, &step, prepare_time, launch_time));
      TRY(llama_logits_fetch(logits, e, work.batch.num_requests));
      TRY(llama_scheduler_launched(s, &step.seq));
      steps++;
      if (show_progress)
        show(s, steps, &shown);
    }
    if (in_flight)
      TRY(collect(e, s, in_flight, &result));
    in_flight = step.seq;
    if (logits->file && in_flight) {
      TRY(collect(e, s, in_flight, &result));
      TRY(llama_logits_write(logits, &work, result.tokens));
      in_flight = 0;
    }
  }
  if (show_progress)
    fprintf(stderr, "\r%40s\r", "");
  meter->seconds = llama_now() - start;
  return llama_scheduler_waiting(s) ? llama_fail("%d requests could not be admitted", llama_scheduler_waiting(s)) : 0;
}
