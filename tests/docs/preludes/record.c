/* Inside `record`. */
#include "tests/docs/preludes/common.h"

extern cgr_recorder *recorder;
extern const float *logits;

cgr_status block(void) {
@BLOCK@
  return CGR_OK;
}
