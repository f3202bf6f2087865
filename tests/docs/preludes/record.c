/* Inside `record`. */
#include "tests/docs/preludes/common.h"

extern cgr_recorder *recorder;
extern const float *logits;
extern cgr_attention attention;
extern const void *q_norm, *k_norm;
extern const float *cos_sin;
extern int32_t max_seq_len;

/* Of a layer whose pages are gathered. */
extern cgr_layer layer;
extern cgr_kv_view out_k, out_v;
extern int64_t num_pages;
extern int32_t *table, *overflow;
extern float *maxima;

cgr_status block(void) {
@BLOCK@
  return CGR_OK;
}
