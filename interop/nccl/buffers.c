/* Memory that NCCL knows: collectives on it need no copies. */
#include "base/status.h"
#include "interop/nccl/nccl.h"

#define SYMMETRIC_WINDOW 1 /* NCCL_WIN_COLL_SYMMETRIC */

static int32_t find_free(const cgr_nccl *n) {
  for (int32_t i = 0; i < CGR__NCCL_MAX_BUFFERS; i++)
    if (!n->buffer[i].handle)
      return i;
  return -1;
}

static cgr_status check_not_ending(cgr_nccl *n, const char *function) {
  pthread_mutex_lock(&n->lock);
  const bool ends = n->ends || __atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE);
  pthread_mutex_unlock(&n->lock);
  if (ends)
    return cgr__nccl_refuse_aborted(n, function);
  return CGR_OK;
}

static cgr_status check_buffer(cgr_nccl *n, const void *base, size_t bytes, int32_t symmetric) {
  static const char function[] = "cgr_nccl_register_buffer";
  const cgr_nccl_functions *f = &n->nccl;
  CGR__REQUIRE(base, "cgr_nccl_register_buffer");
  if (bytes < 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is 0, expected 1 or more", function);
  CGR__TRY(check_not_ending(n, function));
  if (symmetric && (!f->comm_window_register || !f->comm_window_deregister))
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: NCCL %d has no ncclCommWindowRegister, expected symmetric to be 0", function,
                     n->version);
  if (!symmetric && (!f->comm_register || !f->comm_deregister))
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: NCCL %d has no ncclCommRegister, expected no call", function, n->version);
  return CGR_OK;
}

cgr_status cgr_nccl_register_buffer(cgr_nccl *nccl, void *base, size_t bytes, int32_t symmetric, int32_t *buffer) {
  static const char function[] = "cgr_nccl_register_buffer";
  CGR__TRY(cgr__nccl_check_handle(nccl, function));
  CGR__REQUIRE(buffer, "cgr_nccl_register_buffer");
  CGR__TRY(check_buffer(nccl, base, bytes, symmetric));
  const int32_t i = find_free(nccl);
  if (i < 0)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "%s: %s has %d buffers, expected fewer", function, nccl->name,
                     CGR__NCCL_MAX_BUFFERS);
  const cgr_nccl_functions *f = &nccl->nccl;
  void *handle = NULL;
  CGR__TRY(cgr__nccl_enter(nccl, function));
  const int result = symmetric ? f->comm_window_register(nccl->comm, base, bytes, &handle, SYMMETRIC_WINDOW)
                               : f->comm_register(nccl->comm, base, bytes, &handle);
  const cgr_status status =
      cgr__nccl_result(f, nccl->comm, function, symmetric ? "ncclCommWindowRegister" : "ncclCommRegister", result);
  cgr__nccl_leave(nccl);
  CGR__TRY(status);
  if (!handle) /* NCCL's answer where the memory cannot be one */
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "%s: NCCL gives no handle for %p, expected memory that it can register: of ncclMemAlloc", function, base);
  nccl->buffer[i] = (cgr__nccl_buffer){ handle, symmetric != 0 };
  *buffer = i;
  return CGR_OK;
}

static int forget_buffer(cgr_nccl *n, int32_t i) {
  const cgr__nccl_buffer b = n->buffer[i];
  n->buffer[i] = (cgr__nccl_buffer){ NULL, false };
  return b.symmetric ? n->nccl.comm_window_deregister(n->comm, b.handle) : n->nccl.comm_deregister(n->comm, b.handle);
}

cgr_status cgr_nccl_unregister_buffer(cgr_nccl *nccl, int32_t buffer) {
  static const char function[] = "cgr_nccl_unregister_buffer";
  CGR__TRY(cgr__nccl_check_handle(nccl, function));
  if (buffer < 0 || buffer >= CGR__NCCL_MAX_BUFFERS || !nccl->buffer[buffer].handle)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: buffer is %d, expected one of cgr_nccl_register_buffer", function, buffer);
  CGR__TRY(check_not_ending(nccl, function));
  int32_t graphs = 0;
  cgr_progress steps = CGR_PROGRESS_INIT;
  if (nccl->runtime) {
    CGR__TRY(cgr__fail_in(function, cgr_resource_count_graphs(nccl->runtime, nccl->resource, &graphs)));
    CGR__TRY(cgr__fail_in(function, cgr_runtime_progress(nccl->runtime, &steps)));
  }
  if (graphs > 0)
    return cgr__fail(CGR_ERROR_STATE,
                     "%s: %s is held by %d graph%s, which may hold the buffer, expected none: release them "
                     "(cgr_runtime_release_graphs) first",
                     function, nccl->name, graphs, cgr__plural(graphs));
  if (steps.completed != steps.launched)
    return cgr__fail(
        CGR_ERROR_STATE,
        "%s: steps in flight may use the buffer of %s (%llu of %llu have completed), expected none: wait for the last", function,
        nccl->name, (unsigned long long)steps.completed, (unsigned long long)steps.launched);
  CGR__TRY(cgr__nccl_enter(nccl, function));
  const cgr_status status = cgr__nccl_result(&nccl->nccl, nccl->comm, function, "unregistering", forget_buffer(nccl, buffer));
  cgr__nccl_leave(nccl);
  return status;
}

void cgr__nccl_forget_buffers(cgr_nccl *n) {
  for (int32_t i = 0; i < CGR__NCCL_MAX_BUFFERS; i++)
    if (n->buffer[i].handle)
      (void)forget_buffer(n, i);
}
