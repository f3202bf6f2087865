/* The use of the backend of tests/interop. */
#include "tests/docs/preludes/common.h"
#include "tests/interop/own_backend.h"

extern cgr_config config;
extern cgr_layer layers[32];
extern own_engine own;
cgr_status own_backend(own_engine *e, cgr_backend *b);

cgr_status block(void) {
@BLOCK@
  return CGR_OK;
}
