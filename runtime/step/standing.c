/* The standing batch: the calls of step.h over requests/. */
#include "runtime/runtime.h"

static cgr_status check_where(cgr_runtime *rt, const char *function, const cgr_where *where) {
  CGR__TRY(cgr__runtime_check_where(rt, function, where));
  if (!where || where->program == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: program is %d, expected 0: other programs have no standing batch in this version",
                   function, where->program);
}

/* A prepared step refers to the standing batch as it is. */
static cgr_status check_edit(cgr_runtime *rt, const char *function, const cgr_where *where) {
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  CGR__TRY(check_where(rt, function, where));
  return cgr__runtime_check_unprepared(rt, function);
}

cgr_status cgr_standing_add(cgr_runtime *runtime, const cgr_where *where, int32_t row, int32_t query_len, const int32_t *tokens,
                            uint32_t flags) {
  CGR__ONE_THREAD(runtime, "cgr_standing_add");
  CGR__TRY(check_edit(runtime, "cgr_standing_add", where));
  return cgr__standing_add(&runtime->rows, &runtime->lane.batches, row, query_len, tokens, flags);
}

cgr_status cgr_standing_update(cgr_runtime *runtime, const cgr_where *where, int32_t row, int32_t query_len,
                               const int32_t *tokens, uint32_t flags) {
  CGR__ONE_THREAD(runtime, "cgr_standing_update");
  CGR__TRY(check_edit(runtime, "cgr_standing_update", where));
  return cgr__standing_update(&runtime->rows, &runtime->lane.batches, row, query_len, tokens, flags);
}

cgr_status cgr_standing_remove(cgr_runtime *runtime, const cgr_where *where, int32_t row) {
  CGR__ONE_THREAD(runtime, "cgr_standing_remove");
  CGR__TRY(check_edit(runtime, "cgr_standing_remove", where));
  return cgr__standing_remove(&runtime->rows, &runtime->lane.batches, row);
}

cgr_status cgr_standing_swap(cgr_runtime *runtime, const cgr_where *where, int32_t row, int32_t other) {
  CGR__ONE_THREAD(runtime, "cgr_standing_swap");
  CGR__TRY(check_edit(runtime, "cgr_standing_swap", where));
  return cgr__standing_swap(&runtime->rows, &runtime->lane.batches, row, other);
}

cgr_status cgr_standing_rows(cgr_runtime *runtime, const cgr_where *where, const int32_t **rows, int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_standing_rows");
  CGR__TRY(check_where(runtime, "cgr_standing_rows", where));
  CGR__REQUIRE(rows, "cgr_standing_rows");
  CGR__REQUIRE(count, "cgr_standing_rows");
  const cgr__members *standing = &runtime->lane.batches.members;
  *rows = standing->layout.rows;
  *count = standing->follows ? 0 : standing->layout.num_requests;
  return CGR_OK;
}
