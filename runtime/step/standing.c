/* The standing batch: the calls of cgr.h over requests/. */
#include "runtime/runtime.h"

static cgr_status check_place(const char *function, int32_t lane, int32_t program) {
  if (lane != 0 || program != 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: %s is %d, expected 0 in this version", function, lane != 0 ? "lane" : "program",
                     lane != 0 ? lane : program);
  return CGR_OK;
}

/* A prepared step refers to the standing batch as it is. */
static cgr_status check_edit(cgr_runtime *rt, const char *function, int32_t lane, int32_t program) {
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  CGR__TRY(check_place(function, lane, program));
  return cgr__runtime_check_unprepared(rt, function);
}

cgr_status cgr_standing_put(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row, int32_t query_len,
                            const int32_t *tokens, uint32_t flags) {
  CGR__ONE_THREAD(runtime, "cgr_standing_put");
  CGR__TRY(check_edit(runtime, "cgr_standing_put", lane, program));
  return cgr__standing_put(&runtime->rows, row, query_len, tokens, flags);
}

cgr_status cgr_standing_set(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row, int32_t query_len,
                            const int32_t *tokens, uint32_t flags) {
  CGR__ONE_THREAD(runtime, "cgr_standing_set");
  CGR__TRY(check_edit(runtime, "cgr_standing_set", lane, program));
  return cgr__standing_set(&runtime->rows, row, query_len, tokens, flags);
}

cgr_status cgr_standing_take(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row) {
  CGR__ONE_THREAD(runtime, "cgr_standing_take");
  CGR__TRY(check_edit(runtime, "cgr_standing_take", lane, program));
  return cgr__standing_take(&runtime->rows, row);
}

cgr_status cgr_standing_swap(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row, int32_t other) {
  CGR__ONE_THREAD(runtime, "cgr_standing_swap");
  CGR__TRY(check_edit(runtime, "cgr_standing_swap", lane, program));
  return cgr__standing_swap(&runtime->rows, row, other);
}

cgr_status cgr_standing_rows(cgr_runtime *runtime, int32_t lane, int32_t program, const int32_t **rows, int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_standing_rows");
  CGR__TRY(cgr__runtime_check(runtime, "cgr_standing_rows"));
  CGR__TRY(check_place("cgr_standing_rows", lane, program));
  CGR__REQUIRE(rows, "cgr_standing_rows");
  CGR__REQUIRE(count, "cgr_standing_rows");
  *rows = runtime->rows.standing.members.rows;
  *count = runtime->rows.standing.members.num_requests;
  return CGR_OK;
}
