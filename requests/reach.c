#include "requests/reach.h"

#include <stdbool.h>

void cgr__reaches_add(cgr__reaches *reaches, int32_t window, int32_t chunk) {
  for (int32_t i = 0; i < reaches->count; i++)
    if (reaches->of[i].window == window && reaches->of[i].chunk == chunk)
      return;
  bool full = reaches->count == CGR__MAX_REACHES;
  int32_t place = full ? 0 : reaches->count++;
  reaches->of[place].window = full ? 0 : window;
  reaches->of[place].chunk = full ? 0 : chunk;
}

int32_t cgr__reaches_first(const cgr__reaches *reaches, int32_t computed) {
  int32_t first = reaches->count > 0 ? computed : 0;
  for (int32_t i = 0; i < reaches->count; i++) {
    int32_t window = reaches->of[i].window, chunk = reaches->of[i].chunk;
    int32_t in_window = window > 0 && computed >= window ? computed - window + 1 : 0;
    int32_t in_chunk = chunk > 0 ? computed / chunk * chunk : 0;
    int32_t seen = in_window > in_chunk ? in_window : in_chunk; /* a layer with both sees what both leave */
    first = seen < first ? seen : first;
  }
  return first;
}

int32_t cgr__reaches_least(const cgr__reaches *reaches, int32_t first) {
  int64_t least = reaches->count > 0 ? first : INT32_MAX;
  if (first == 0)
    return 0;
  for (int32_t i = 0; i < reaches->count; i++) {
    int64_t window = reaches->of[i].window, chunk = reaches->of[i].chunk;
    int64_t in_window = window > 0 ? first + window - 1 : INT32_MAX;
    int64_t in_chunk = chunk > 0 ? (first + chunk - 1) / chunk * chunk : INT32_MAX;
    int64_t needed = in_window < in_chunk ? in_window : in_chunk;
    least = needed > least ? needed : least;
  }
  return least < INT32_MAX ? (int32_t)least : INT32_MAX;
}
