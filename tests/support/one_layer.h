// The `record` of a model that is one attention: layer 0, with one head of queries, keys and values.
#pragma once

#include "cgr/cgr.h"

namespace cgr_test {

// All views are in the same fp32 memory, so what they hold means nothing.
template <int32_t kDim> cgr_status RecordOneLayer(cgr_recorder *recorder, void *memory) {
  cgr_attention a = CGR_ATTENTION_INIT;
  for (cgr_view *view : { &a.q, &a.k, &a.v, &a.out }) {
    const cgr_status status = cgr_view_make(memory, CGR_DTYPE_FP32, 1, kDim, view);
    if (status != CGR_OK)
      return status;
  }
  return cgr_record_attention(recorder, &a);
}

} // namespace cgr_test
