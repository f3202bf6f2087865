/* What a view that the engine gives inside `record` must hold. */
#ifndef CGR_RUNTIME_RECORD_EXTENT_H
#define CGR_RUNTIME_RECORD_EXTENT_H

#include "cgr/attention.h"

/* Tokens x heads x dim elements of one dtype. */
typedef struct cgr__extent {
  const char *name;  /* of the view, for messages */
  const char *whose; /* dtype it is, for messages: ", the layer's", or "" */
  int32_t dtype;
  int32_t tokens, heads, dim;
  int64_t unit; /* elements that strides are multiples of */
} cgr__extent;

/* Of a tensor whose address and strides are multiples of 16 bytes. */
static inline cgr__extent cgr__extent_of(const char *name, int32_t dtype, int32_t tokens, int32_t heads, int32_t dim) {
  const int64_t unit = (int64_t)(16 / cgr_dtype_size((cgr_dtype)dtype));
  return (cgr__extent){ name, "", dtype, tokens, heads, dim, unit };
}
/* Of an lse. */
static inline cgr__extent cgr__extent_of_lse(const char *name, int32_t tokens, int32_t heads) {
  return (cgr__extent){ name, "", CGR_DTYPE_FP32, tokens, heads, 1, 1 };
}

cgr_status cgr__extent_check(const char *function, const cgr_view *view, const cgr__extent *extent);

#endif
