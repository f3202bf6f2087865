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

int llama_meter_completed(llama_meter *meter) {
  double before = meter->completed;
  meter->completed = llama_now();
  return llama_series_add(&meter->intervals, meter->completed - before);
}

void llama_meter_free(llama_meter *meter) {
  free(meter->intervals.values);
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

int llama_meter_median(const llama_meter *meter, int replayed, uint64_t *steps, float *microseconds) {
  llama_series all = { 0 };
  int first = replayed ? CGR_KIND_PIECEWISE : CGR_KIND_NONE, last = replayed ? CGR_KIND_FULL : CGR_KIND_NONE;
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++)
    for (int kind = first; kind <= last; kind++)
      all.capacity += meter->kinds[phase][kind].both.count;
  all.values = malloc((all.capacity + 1) * sizeof(*all.values));
  if (!all.values)
    return llama_fail("no memory");
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++)
    for (int kind = first; kind <= last; kind++) {
      const llama_series *part = &meter->kinds[phase][kind].both;
      if (part->count)
        memcpy(all.values + all.count, part->values, part->count * sizeof(*all.values));
      all.count += part->count;
    }
  *steps = all.count;
  *microseconds = llama_quantile(&all, 0.5);
  free(all.values);
  return 0;
}
