#include "tracing/nvtx.h"

const char *cgr__nvtx_range_name(cgr__nvtx_range range) {
  static const char *const names[CGR__RANGE_COUNT] = {
#define NAME(name, text, category) text,
    CGR__RANGE_LIST(NAME)
#undef NAME
  };
  return names[range];
}
