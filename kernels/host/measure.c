#include "base/convert.h"
#include "cgr/cgr.h"
#include "kernels/host/launchers.h"
#include "kernels/measure.h"
#include "kernels/quantise.h"

/* Branches of a step may run on several threads, and share maxima. */
static void raise_maximum(float *maximum, float value) {
  float before;
  __atomic_load(maximum, &before, __ATOMIC_RELAXED);
  while (value > before && !__atomic_compare_exchange(maximum, &before, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

static void measure_head(const cgr__measure_args *m, int64_t token, int64_t head) {
  const int64_t element = token * m->view.stride_token + head * m->view.stride_head;
  const unsigned char *from = (const unsigned char *)m->view.data + element * cgr__element_size(m->view.dtype);
  float *maxima = m->maxima + head * m->head_dim, unit[CGR__MEASURE_UNIT];
  for (int32_t d = 0; d < m->head_dim; d += CGR__MEASURE_UNIT) {
    cgr__row_to_float(unit, from + d * cgr__element_size(m->view.dtype), m->view.dtype, CGR__MEASURE_UNIT);
    for (int32_t i = 0; i < CGR__MEASURE_UNIT; i++)
      raise_maximum(&maxima[d + i], cgr__larger_magnitude(0.0f, unit[i]));
  }
}

void cgr__host_measure(const void *pointer) {
  const cgr__measure_args *m = (const cgr__measure_args *)pointer;
  for (int32_t t = 0; t < m->counts[CGR_COUNT_TOKENS]; t++)
    for (int32_t h = 0; h < m->num_heads; h++)
      measure_head(m, t, h);
}
