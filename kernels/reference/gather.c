#include "kernels/reference/gather.h"

#include <stdbool.h>

#include "kernels/reference/reference.h"

static int64_t element_size(int32_t dtype) {
  const bool is_code = dtype == CGR_DTYPE_FP8_E4M3 || dtype == CGR_DTYPE_FP8_E5M2 || dtype == CGR_DTYPE_I8;
  return dtype == CGR_DTYPE_FP32 ? 4 : is_code ? 1 : 2;
}

static double factor(const cgr_kv_view *view, int64_t page, int64_t token, int64_t head, int64_t d) {
  if (!view->scale)
    return 1.0;
  return view->scale[page * view->scale_stride_page + token * view->scale_stride_token + head * view->scale_stride_head +
                     d * view->scale_stride_d];
}

void *cgr__reference_kv_element(const cgr_kv_view *view, int64_t page, int64_t token, int64_t head) {
  int64_t element = page * view->stride_page + token * view->stride_token + head * view->stride_head;
  return (unsigned char *)view->base + element * element_size(view->dtype);
}

void cgr__reference_gather(const cgr_kv_view *view, const int32_t *pages, int32_t page_size, int32_t seq_len,
                           int32_t num_kv_heads, int32_t head_dim, double *out) {
  for (int32_t t = 0; t < seq_len; t++) {
    for (int32_t h = 0; h < num_kv_heads; h++) {
      const unsigned char *from = (const unsigned char *)cgr__reference_kv_element(view, pages[t / page_size], t % page_size, h);
      for (int32_t d = 0; d < head_dim; d++)
        *out++ = cgr__reference_load(view->dtype, from + d * element_size(view->dtype)) *
                 factor(view, pages[t / page_size], t % page_size, h, d);
    }
  }
}
