#include "examples/llama/serve.h"

#include <stdio.h>

int llama_step(llama_engine *e, const cgr_batch *batch, cgr_step *step, llama_cost *cost) {
  double begin = llama_now();
  cgr_key key;
  cgr_batch agreed = *batch;
  if (e->team) {
    TRY(llama_team_agree(e->team, batch, &key));
    agreed.forced_key = batch->forced_key ? batch->forced_key : &key;
  }
  double start = llama_now();
  cgr_status status = cgr_step_prepare_wait(e->runtime, &agreed, step, -1, e->stream);
  if (status == CGR_ERROR_CHANGES_PENDING)
    return 0;
  TRY(llama_cgr(status, "cgr_step_prepare_wait"));
  double prepared = llama_now();
  TRY_CGR(cgr_step_launch(e->runtime, step, e->stream));
  *cost = (llama_cost){ start - begin, prepared - start, llama_now() - prepared };
  return 0;
}

int llama_wait(const llama_engine *e, cgr_mark mark, cgr_step_result *result) {
  return e->team ? llama_team_wait(e->team, mark, result)
                 : llama_cgr(cgr_step_wait(e->runtime, mark, -1, result), "cgr_step_wait");
}

/* Ten times a second at most. */
static void show(const llama_scheduler *s, uint64_t steps, double *shown) {
  if (llama_now() - *shown < 0.1)
    return;
  *shown = llama_now();
  fprintf(stderr, "\r%llu step%s, %d running, %d waiting   ", (unsigned long long)steps, llama_plural((long long)steps),
          llama_scheduler_running(s), llama_scheduler_waiting(s));
  fflush(stderr);
}

/* Reads the results that are due. */
static int collect(llama_loop *l) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  if (!l->in_flight.seq)
    return 0;
  TRY(llama_wait(l->engine, l->in_flight, &result));
  TRY(llama_trace_step(l->trace, l->in_flight));
  l->in_flight = (cgr_mark){ 0, 0, 0 };
  TRY(llama_logits_write(l->logits, &result));
  TRY(llama_meter_results(l->meter, &l->work, &result));
  TRY(llama_scheduler_completed(l->scheduler, &result));
  llama_text_continue(l->text);
  return 0;
}

/* Step N + 1 is prepared and launched before the tokens of step N are read: the device has them already, and the host needs
 * them only to show them and to find an end token. With logits, which the next step overwrites, they are read at once; so they
 * are for guesses that shall follow from all tokens. */
static int turn(llama_loop *l, const llama_work *work) {
  cgr_step step = CGR_STEP_INIT;
  llama_cost cost;
  TRY(llama_step(l->engine, &work->batch, &step, &cost));
  if (step.state != CGR_STEP_LAUNCHED) /* this may end a request: the step is composed again */
    return l->in_flight.seq ? collect(l) : llama_fail("%s", cgr_last_message());
  TRY(llama_meter_add(l->meter, work->phase, &step, cost.prepare, cost.launch));
  if (l->engine->team)
    TRY(llama_series_add(&l->meter->agreements, cost.agree));
  if (l->logits->file && l->engine->team) /* fetching waits for the device, but not for ranks that end meanwhile */
    TRY(llama_wait(l->engine, step.mark, NULL));
  TRY(llama_logits_fetch(l->logits, l->engine, work->batch.num_requests));
  TRY(llama_scheduler_launched(l->scheduler, &step.mark.seq));
  TRY(collect(l));
  l->in_flight = step.mark;
  l->work = *work;
  l->steps++;
  return l->logits->file || l->engine->limits.draft.waits ? collect(l) : 0;
}

int llama_loop_turn(llama_loop *l, bool *idle) {
  llama_work work;
  TRY(llama_scheduler_compose(l->scheduler, &work));
  *idle = work.batch.num_requests == 0 && !l->in_flight.seq;
  return *idle ? 0 : work.batch.num_requests ? turn(l, &work) : collect(l);
}

int llama_loop_steps(llama_loop *l, uint64_t steps) {
  const double start = llama_now();
  bool idle = false;
  l->meter->completed = start;
  for (const uint64_t last = l->steps + steps; l->steps < last && !idle;)
    TRY(llama_loop_turn(l, &idle));
  TRY(collect(l));
  l->meter->seconds = llama_now() - start;
  return 0;
}

int llama_serve(llama_engine *e, llama_scheduler *s, llama_meter *meter, llama_logits *logits, llama_trace *trace,
                llama_text *text, bool show_progress) {
  double start = llama_now(), shown = start;
  llama_loop l = { .engine = e, .scheduler = s, .meter = meter, .logits = logits, .trace = trace };
  bool idle = false;
  l.text = text;
  meter->completed = start;
  while (!idle) {
    TRY(llama_loop_turn(&l, &idle));
    if (show_progress)
      show(s, l.steps, &shown);
  }
  if (show_progress)
    fprintf(stderr, "\r%40s\r", "");
  meter->seconds = llama_now() - start;
  return llama_scheduler_waiting(s) ? llama_fail("%d request%s could not be admitted", llama_scheduler_waiting(s),
                                                 llama_plural(llama_scheduler_waiting(s)))
                                    : 0;
}
