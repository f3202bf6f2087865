#include "requests/window_spans.h"

#include <stdbool.h>

void cgr__window_spans_add(cgr__window_spans *spans, int32_t window, int32_t chunk) {
  for (int32_t i = 0; i < spans->count; i++)
    if (spans->of[i].window == window && spans->of[i].chunk == chunk)
      return;
  bool full = spans->count == CGR__MAX_WINDOW_SPANS;
  int32_t place = full ? 0 : spans->count++;
  spans->of[place].window = full ? 0 : window;
  spans->of[place].chunk = full ? 0 : chunk;
}

int32_t cgr__window_spans_first(const cgr__window_spans *spans, int32_t computed) {
  int32_t first = spans->count > 0 ? computed : 0;
  for (int32_t i = 0; i < spans->count; i++) {
    int32_t window = spans->of[i].window, chunk = spans->of[i].chunk;
    int32_t in_window = window > 0 && computed >= window ? computed - window + 1 : 0;
    int32_t in_chunk = chunk > 0 ? computed / chunk * chunk : 0;
    int32_t visible = in_window > in_chunk ? in_window : in_chunk; /* a layer with both sees what both leave */
    first = visible < first ? visible : first;
  }
  return first;
}

int32_t cgr__window_spans_least(const cgr__window_spans *spans, int32_t first) {
  int64_t least = spans->count > 0 ? first : INT32_MAX;
  if (first == 0)
    return 0;
  for (int32_t i = 0; i < spans->count; i++) {
    int64_t window = spans->of[i].window, chunk = spans->of[i].chunk;
    int64_t in_window = window > 0 ? first + window - 1 : INT32_MAX;
    int64_t in_chunk = chunk > 0 ? (first + chunk - 1) / chunk * chunk : INT32_MAX;
    int64_t needed = in_window < in_chunk ? in_window : in_chunk;
    least = needed > least ? needed : least;
  }
  return least < INT32_MAX ? (int32_t)least : INT32_MAX;
}
