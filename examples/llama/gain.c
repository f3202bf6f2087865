#include "examples/llama/gain.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"
#include "examples/llama/units.h"

/* The requests of another run as they were before it, with memory of their own for what is generated. */
static int copy_requests(const llama_request *from, int32_t count, llama_request **copies, int32_t **memory) {
  size_t tokens = 0;
  for (int32_t i = 0; i < count; i++)
    tokens += (size_t)from[i].max_new;
  *copies = calloc((size_t)count, sizeof(**copies));
  *memory = malloc(tokens * sizeof(**memory));
  if (!*copies || !*memory)
    return llama_fail("no memory");
  int32_t *at = *memory;
  for (int32_t i = 0; i < count; i++) {
    const llama_request *r = &from[i];
    (*copies)[i] = (llama_request){ .id = r->id, .prompt = r->prompt, .num_prompt = r->num_prompt, .max_new = r->max_new };
    (*copies)[i].seed = r->seed;
    (*copies)[i].temperature = r->temperature;
    (*copies)[i].generated = at;
    at += r->max_new;
  }
  return 0;
}

static int serve_plain(llama_engine *e, llama_scheduler *s, llama_request *requests, int32_t count, llama_meter *meter) {
  llama_logits no_logits = { 0 };
  llama_trace no_trace = { 0 };
  llama_text no_text = { 0 };
  for (int32_t i = 0; i < count; i++)
    TRY(llama_scheduler_add(s, &requests[i]));
  return llama_serve(e, s, meter, &no_logits, &no_trace, &no_text, false);
}

static double rate_of(const llama_meter *meter, const llama_request *requests, int32_t count) {
  double tokens = 0.0;
  for (int32_t i = 0; i < count; i++)
    tokens += requests[i].num_generated;
  return meter->generation_seconds > 0.0 ? tokens / meter->generation_seconds : 0.0;
}

static int32_t count_equal(const llama_request *a, const llama_request *b, int32_t count) {
  int32_t equal = 0;
  for (int32_t i = 0; i < count; i++)
    equal += a[i].num_generated == b[i].num_generated &&
             memcmp(a[i].generated, b[i].generated, (size_t)a[i].num_generated * sizeof(*a[i].generated)) == 0;
  return equal;
}

static double step_ms(const llama_pace *pace) { return pace->steps ? 1e3 * pace->seconds / (double)pace->steps : 0.0; }

static void print_gain(FILE *out, const llama_pace *guessing_paces, const llama_pace *plain_paces, double rate,
                       double plain_rate) {
  const llama_pace guessing = llama_pace_sum(guessing_paces), plain = llama_pace_sum(plain_paces);
  fprintf(out, "plain      %7s tokens/s, with guesses %s: %.2f times as fast; the steps' times predict %.2f\n",
          llama_count((uint64_t)plain_rate).text, llama_count((uint64_t)rate).text, plain_rate > 0.0 ? rate / plain_rate : 0.0,
          llama_predicted_gain(plain_paces, guessing_paces));
  fprintf(out, "steps      %7s without guesses of %.3f ms, %s with guesses of %.3f ms\n", llama_count(plain.steps).text,
          step_ms(&plain), llama_count(guessing.steps).text, step_ms(&guessing));
}

int llama_gain_measure(FILE *out, llama_engine *e, const llama_scheduler_config *config, const llama_meter *meter,
                       const llama_request *requests, int32_t num_requests) {
  llama_scheduler_config plain = *config;
  llama_scheduler *scheduler = NULL;
  llama_request *copies = NULL;
  llama_meter other = { 0 };
  int32_t *memory = NULL;
  plain.draft = (llama_draft){ .kind = config->draft.kind };
  int result = copy_requests(requests, num_requests, &copies, &memory);
  if (result == 0)
    result = llama_scheduler_create(&plain, &scheduler);
  if (result == 0)
    result = serve_plain(e, scheduler, copies, num_requests, &other);
  if (result == 0)
    print_gain(out, meter->paces, other.paces, rate_of(meter, requests, num_requests), rate_of(&other, copies, num_requests));
  if (result == 0 && config->draft.kind == LLAMA_DRAFT_LOOKUP)
    fprintf(out, "tokens     those of %d of %d request%s are the same without guesses\n",
            count_equal(requests, copies, num_requests), num_requests, llama_plural(num_requests));
  llama_scheduler_destroy(scheduler);
  llama_meter_free(&other);
  free(copies);
  free(memory);
  return result;
}
