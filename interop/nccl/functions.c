/* NCCL's functions, its failures and its numbers. */
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "interop/nccl/nccl.h"

/* X(field, name, optional) */
#define FUNCTIONS(X)                                       \
  X(get_version, "ncclGetVersion", 0)                      \
  X(get_unique_id, "ncclGetUniqueId", 1)                   \
  X(comm_init_rank, "ncclCommInitRank", 1)                 \
  X(comm_destroy, "ncclCommDestroy", 0)                    \
  X(comm_abort, "ncclCommAbort", 0)                        \
  X(comm_get_async_error, "ncclCommGetAsyncError", 0)      \
  X(comm_count, "ncclCommCount", 0)                        \
  X(comm_user_rank, "ncclCommUserRank", 0)                 \
  X(get_error_string, "ncclGetErrorString", 0)             \
  X(get_last_error, "ncclGetLastError", 1)                 \
  X(group_start, "ncclGroupStart", 0)                      \
  X(group_end, "ncclGroupEnd", 0)                          \
  X(all_reduce, "ncclAllReduce", 0)                        \
  X(all_gather, "ncclAllGather", 0)                        \
  X(reduce_scatter, "ncclReduceScatter", 0)                \
  X(broadcast, "ncclBroadcast", 0)                         \
  X(send, "ncclSend", 0)                                   \
  X(recv, "ncclRecv", 0)                                   \
  X(comm_register, "ncclCommRegister", 1)                  \
  X(comm_deregister, "ncclCommDeregister", 1)              \
  X(comm_window_register, "ncclCommWindowRegister", 1)     \
  X(comm_window_deregister, "ncclCommWindowDeregister", 1) \
  X(mem_alloc, "ncclMemAlloc", 1)                          \
  X(mem_free, "ncclMemFree", 1)

cgr_status cgr_nccl_find(cgr_nccl_find_function find, void *library, cgr_nccl_functions *functions) {
  if (!find)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_nccl_find: find is NULL, expected a function: dlsym");
  CGR__TRY(cgr__sized_check("cgr_nccl_find: functions", "CGR_NCCL_FUNCTIONS_INIT", functions));
  cgr_nccl_functions found = CGR_NCCL_FUNCTIONS_INIT;
#define FIND(field, name, optional)                                                                                        \
  {                                                                                                                        \
    void *address = find(library, name);                                                                                   \
    if (!address && !(optional))                                                                                           \
      return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_nccl_find: library %p has no %s, expected NCCL 2.10 or later", library, \
                       name);                                                                                              \
    memcpy(&found.field, &address, sizeof address);                                                                        \
  }
  FUNCTIONS(FIND)
#undef FIND
  cgr__sized_write(functions, &found, sizeof found);
  return CGR_OK;
}

cgr_status cgr__nccl_read_functions(const cgr_nccl_functions *given, bool makes_comm, cgr_nccl_functions *functions) {
  CGR__TRY(cgr__sized_read("cgr_nccl_create: config.functions", "CGR_NCCL_FUNCTIONS_INIT", given, functions, sizeof *functions));
  CGR__TRY(cgr__check_unused("cgr_nccl_create: config.functions.reserved", functions->reserved));
  const char *missing = NULL;
#define CHECK(field, name, optional)                \
  if (!functions->field && !(optional) && !missing) \
    missing = #field;
  FUNCTIONS(CHECK)
#undef CHECK
  if (!missing && makes_comm && !functions->get_unique_id)
    missing = "get_unique_id";
  if (!missing && makes_comm && !functions->comm_init_rank)
    missing = "comm_init_rank";
  if (missing)
    return cgr__fail(CGR_ERROR_NULL_POINTER,
                     "cgr_nccl_create: config.functions.%s is NULL, expected a function: see cgr_nccl_find", missing);
  return CGR_OK;
}

/* By ncclResult_t. ncclInProgress is what communicators answer that do not block, and that cgr_nccl_check polls: no call is
 * made again. */
static cgr_status status_of(int result) {
  static const cgr_status statuses[] = { CGR_OK,           CGR_ERROR_DEVICE,           CGR_ERROR_DEVICE,
                                         CGR_ERROR_DEVICE, CGR_ERROR_INVALID_ARGUMENT, CGR_ERROR_STATE,
                                         CGR_ERROR_RANK,   CGR_ERROR_UNSUPPORTED };
  return result >= 0 && result < (int)(sizeof statuses / sizeof statuses[0]) ? statuses[result] : CGR_ERROR_DEVICE;
}

cgr_status cgr__nccl_result(const cgr_nccl_functions *nccl, ncclComm_t comm, const char *function, const char *what, int result) {
  if (result == CGR__NCCL_SUCCESS)
    return CGR_OK;
  const char *text = nccl->get_error_string(result), *more = nccl->get_last_error ? nccl->get_last_error(comm) : NULL;
  cgr__set_device_code(result);
  return cgr__fail(status_of(result), "%s: %s has returned %d, expected ncclSuccess: %.100s%s%.200s", function, what, result,
                   text ? text : "no text", more && more[0] ? ": " : "", more ? more : "");
}

int32_t cgr__nccl_dtype(int32_t dtype) {
  static const struct {
    int32_t dtype, number;
  } numbers[] = { { CGR_DTYPE_I8, 0 },   { CGR_DTYPE_U8, 1 },        { CGR_DTYPE_I32, 2 },
                  { CGR_DTYPE_I64, 4 },  { CGR_DTYPE_FP16, 6 },      { CGR_DTYPE_FP32, 7 },
                  { CGR_DTYPE_BF16, 9 }, { CGR_DTYPE_FP8_E4M3, 10 }, { CGR_DTYPE_FP8_E5M2, 11 } };
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    if (numbers[i].dtype == dtype)
      return numbers[i].number;
  return -1;
}

bool cgr__nccl_is_plain(const char *text) {
  while ((unsigned char)*text >= ' ' && *text != 127)
    text++;
  return *text == '\0';
}

cgr_status cgr__nccl_check_handle(const cgr_nccl *nccl, const char *function) {
  if (nccl && nccl->magic == CGR__NCCL_MAGIC)
    return CGR_OK;
  return cgr__fail(nccl ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_NULL_POINTER,
                   "%s: nccl is %p, expected one from cgr_nccl_create", function, (const void *)nccl);
}

cgr_status cgr__nccl_refuse_aborted(const cgr_nccl *n, const char *function) {
  return cgr__fail(CGR_ERROR_STATE, "%s: %s has been aborted, expected no call but cgr_nccl_destroy", function, n->name);
}

cgr_status cgr__nccl_enter(cgr_nccl *n, const char *function) {
  (void)__atomic_add_fetch(&n->users, 1, __ATOMIC_SEQ_CST); /* before it looks, as an abort does the reverse */
  if (!__atomic_load_n(&n->aborted, __ATOMIC_SEQ_CST))
    return CGR_OK;
  cgr__nccl_leave(n);
  return cgr__nccl_refuse_aborted(n, function);
}

void cgr__nccl_leave(cgr_nccl *n) { (void)__atomic_sub_fetch(&n->users, 1, __ATOMIC_SEQ_CST); }
