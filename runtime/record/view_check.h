/* What a view that the engine gives inside `record` must hold, and which views may share memory. */
#ifndef CGR_RUNTIME_RECORD_VIEW_CHECK_H
#define CGR_RUNTIME_RECORD_VIEW_CHECK_H

#include <stdbool.h>

#include "runtime/record/recorder.h"

/* Tokens x heads x dim elements of one dtype. */
typedef struct cgr__view_shape {
  const char *name;  /* of the view, for messages */
  const char *whose; /* dtype it is, for messages: ", the layer's", or "" */
  int32_t dtype;
  int32_t tokens, heads, dim;
  int64_t unit; /* elements that strides are multiples of */
} cgr__view_shape;

/* Of a tensor whose address and strides are multiples of 16 bytes. */
static inline cgr__view_shape cgr__view_shape_of(const char *name, int32_t dtype, int32_t tokens, int32_t heads, int32_t dim) {
  const int64_t unit = (int64_t)(128 / cgr_dtype_bits((cgr_dtype)dtype));
  return (cgr__view_shape){ name, "", dtype, tokens, heads, dim, unit };
}
/* Of an lse. */
static inline cgr__view_shape cgr__view_shape_of_lse(const char *name, int32_t tokens, int32_t heads) {
  return (cgr__view_shape){ name, "", CGR_DTYPE_FP32, tokens, heads, 1, 1 };
}

cgr_status cgr__view_check(const cgr__step_recorder *recorder, const char *function, const cgr_view *view,
                           const cgr__view_shape *shape);
/* CGR_ERROR_INVALID_ARGUMENT if memory that begins in an allocation of the device's ends past it. Not in eager steps
 * without a layer that checks: it takes a lock. */
cgr_status cgr__memory_end_check(const cgr__step_recorder *recorder, const char *function, const char *name, const void *data,
                                 uint64_t bytes);

/* CGR_ERROR_STATE inside a backend's plan, where only plans are enqueued. */
cgr_status cgr__check_outside_plan(const cgr_recorder *recorder, const char *function);
/* 1 .. CGR__MAX_Q_HEADS heads of 8 .. 1024 elements, a multiple of 8. */
cgr_status cgr__check_heads(const char *function, int32_t num_heads, int32_t head_dim);
/* fp32, fp16 or bf16. `name`: of the field. */
cgr_status cgr__check_float_dtype(const char *function, const char *name, int32_t dtype);

/* A view, and what it holds. */
typedef struct cgr__tensor {
  const cgr_view *view;
  cgr__view_shape shape;
} cgr__tensor;

/* CGR_ERROR_INVALID_ARGUMENT if addresses and strides show that the two have a byte in common; `may_be_same`: unless each element
 * of one is the same element of the other. A view that is not given has nothing in common with any. */
cgr_status cgr__tensor_check_apart(const char *function, const cgr__tensor *written, const cgr__tensor *other, bool may_be_same);

#endif
