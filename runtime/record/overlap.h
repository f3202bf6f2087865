/* Whether what a kernel writes overlaps what it reads, among tensors that the engine gives inside `record`. */
#ifndef CGR_RUNTIME_RECORD_OVERLAP_H
#define CGR_RUNTIME_RECORD_OVERLAP_H

#include <stdbool.h>

#include "runtime/record/extent.h"

/* A view, and what it holds. */
typedef struct cgr__tensor {
  const cgr_view *view;
  cgr__extent extent;
} cgr__tensor;

/* CGR_ERROR_INVALID_ARGUMENT if addresses and strides show that the two have a byte in common; `may_be_same`: unless each element
 * of one is the same element of the other. A view that is not given has nothing in common with any. */
cgr_status cgr__tensor_check_apart(const char *function, const cgr__tensor *written, const cgr__tensor *other, bool may_be_same);

#endif
