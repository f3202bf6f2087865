#include "examples/llama/meter.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/llama/error.h"

double llama_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int llama_series_add(llama_series *series, double seconds) {
  if (series->count == series->capacity) {
    size_t capacity = series->capacity ? 2 * series->capacity : 1024;
    float *values = realloc(series->values, capacity * sizeof(*values));
    if (!values)
      return llama_fail("no memory");
    series->values = values;
    series->capacity = capacity;
  }
  series->values[series->count++] = (float)(1e6 * seconds);
  return 0;
}

int llama_meter_add(llama_meter *meter, llama_phase phase, const cgr_step *step, double prepare_seconds, double launch_seconds) {
  llama_kind *kind = &meter->kinds[phase][step->key.kind];
  kind->steps++;
  kind->requests += (uint64_t)step->num_requests;
  kind->real_tokens += (uint64_t)step->num_tokens;
  kind->padded_tokens += (uint64_t)step->key.num_tokens;
  kind->bytes_staged += step->bytes_staged;
  TRY(llama_series_add(&kind->prepare, prepare_seconds));
  TRY(llama_series_add(&kind->launch, launch_seconds));
  return llama_series_add(&kind->both, prepare_seconds + launch_seconds);
}

static void add_to_pace(llama_pace *pace, const cgr_step_result *result, double seconds) {
  pace->steps++;
  pace->seconds += seconds;
  for (int32_t i = 0; i < result->num_requests; i++) {
    pace->samples += result->num_tokens[i] > 0;
    pace->tokens += (uint64_t)result->num_tokens[i];
  }
}

int llama_meter_results(llama_meter *meter, const llama_work *work, const cgr_step_result *result) {
  double now = llama_now(), seconds = now - meter->completed;
  meter->completed = now;
  TRY(llama_series_add(&meter->intervals, seconds));
  meter->prompt += (uint64_t)work->prompt_tokens;
  meter->prompt_seconds += work->prompt_tokens ? seconds : 0.0;
  meter->generation_seconds += work->num_samples ? seconds : 0.0;
  if (work->phase == LLAMA_MIXED) {
    llama_demand load = work->load;
    load.seconds = seconds;
    llama_demand_add(&meter->mixed, &load);
  }
  if (!work->prompt_tokens)
    add_to_pace(&meter->paces[llama_pace_index(result->num_requests)], result, seconds);
  for (int32_t i = 0; i < result->num_requests; i++) {
    llama_request *r = llama_result_request(result, i);
    if (result->num_tokens[i] == 0 || r->ended_early)
      continue;
    llama_series *series = r->num_generated ? &meter->between_tokens : &meter->first_token;
    TRY(llama_series_add(series, (now - r->last_time) / (r->num_generated ? result->num_tokens[i] : 1)));
    r->last_time = now;
  }
  return 0;
}

void llama_meter_free(llama_meter *meter) {
  free(meter->intervals.values);
  free(meter->agreements.values);
  free(meter->first_token.values);
  free(meter->between_tokens.values);
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++)
    for (int kind = 0; kind < 3; kind++) {
      free(meter->kinds[phase][kind].prepare.values);
      free(meter->kinds[phase][kind].launch.values);
      free(meter->kinds[phase][kind].both.values);
    }
}

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

float llama_quantile(llama_series *series, double share) {
  if (series->count == 0)
    return 0.0f;
  qsort(series->values, series->count, sizeof(*series->values), ascending);
  size_t index = (size_t)(share * (double)series->count);
  return series->values[index < series->count ? index : series->count - 1];
}
