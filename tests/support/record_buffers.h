// The runtime's buffers, inside `record`.
#pragma once

#include "cgr/cgr.h"

namespace cgr_test {

// A buffer of i32; after a failure, which stays in `status`, NULL.
inline int32_t *RecordBuffer(cgr_recorder *recorder, cgr_buffer which, cgr_status *status) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  if (*status == CGR_OK)
    *status = cgr_record_buffer(recorder, which, 0, &view);
  return static_cast<int32_t *>(view.data);
}

} // namespace cgr_test
