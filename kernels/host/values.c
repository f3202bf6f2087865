#include "kernels/values.h"

#include "kernels/host/launchers.h"

static bool is_bad(const cgr__check_values_args *a, int64_t index) {
  if (a->dtype == CGR_DTYPE_FP32)
    return cgr__value_is_bad32(((const uint32_t *)a->data)[index], a->masked);
  uint32_t exponent = a->dtype == CGR_DTYPE_BF16 ? 0x7f80u : 0x7c00u;
  return cgr__value_is_bad16(((const uint16_t *)a->data)[index], exponent, a->masked);
}

/* Branches of a step may run on several threads. */
static void mark(const cgr__check_values_args *a, int32_t request) {
  uint64_t seq = a->state->seq + 1, before = __atomic_load_n(&a->flags[request], __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&a->flags[request], &before, cgr__value_word(before, seq, a->bit), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}

void cgr__host_check_values(const void *pointer) {
  const cgr__check_values_args *a = (const cgr__check_values_args *)pointer;
  for (int32_t row = 0; row < a->num_rows; row++) {
    int32_t request = cgr__value_request(a, row);
    bool found = false;
    for (int64_t i = 0; i < a->width && request >= 0 && !found; i++)
      found = is_bad(a, row * a->stride + i);
    if (found)
      mark(a, request);
  }
}
