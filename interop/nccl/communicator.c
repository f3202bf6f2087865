/* How a communicator is made, and how it ends: by itself, or because a rank is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/sized.h"
#include "base/status.h"
#include "interop/nccl/nccl.h"

#define DEFAULT_TIMEOUT_MS 30000
#define USERS_MS 1000 /* that an abort leaves to those who use the communicator. One may be held up in NCCL until then */
#define FLAGS (CGR_NCCL_KEEP | CGR_NCCL_MARKS)

/* What ranks send each other before they make a communicator. */
typedef struct id_block {
  uint32_t magic;
  int32_t status; /* of making the id: rank 0's */
  cgr_nccl_id id;
} id_block;

/* ---------------------------------------------------------------------------------------------------------------- making */

static cgr_status check_name(const char *name) {
  const size_t length = strnlen(name, CGR__NCCL_NAME_BYTES);
  if (length > 0 && length < CGR__NCCL_NAME_BYTES && cgr__nccl_is_plain(name))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_nccl_create: config.name is \"%.23s\", expected 1 .. %d characters without control characters", name,
                   CGR__NCCL_NAME_BYTES - 1);
}

static cgr_status read_config(const cgr_nccl_config *given, cgr_nccl_config *c, cgr_nccl *n) {
  CGR__TRY(cgr__sized_read("cgr_nccl_create: config", "CGR_NCCL_CONFIG_INIT", given, c, sizeof *c));
  CGR__TRY(cgr__check_unused("cgr_nccl_create: config.reserved", c->reserved));
  if (c->flags & ~(uint32_t)FLAGS)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "cgr_nccl_create: config.flags is %#x, expected bits of %#x, CGR_NCCL_*", c->flags,
                     (unsigned)FLAGS);
  if (c->timeout_ms < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_nccl_create: config.timeout_ms is %d, expected 0 or more", c->timeout_ms);
  if (!c->comm == !c->exchange)
    return cgr__fail(c->comm ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_NULL_POINTER,
                     "cgr_nccl_create: config.comm and config.exchange are %s, expected one of them",
                     c->comm ? "both given" : "both NULL");
  if ((c->flags & CGR_NCCL_KEEP) && !c->comm)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_nccl_create: config.flags has CGR_NCCL_KEEP without a comm, expected one");
  c->name = c->name ? c->name : "nccl";
  CGR__TRY(check_name(c->name));
  CGR__TRY(cgr__nccl_read_functions(c->functions, !c->comm, &n->nccl));
  memcpy(n->name, c->name, strlen(c->name));
  n->flags = c->flags;
  n->timeout_ms = c->timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : c->timeout_ms;
  n->comm = c->comm;
  return CGR_OK;
}

static cgr_status tell_missing(const cgr_nccl *n, uint64_t missing) {
  char names[160] = "";
  for (int32_t r = 0; r < CGR_MAX_RANKS; r++)
    if (missing >> r & 1 && strlen(names) < sizeof names - 8)
      (void)snprintf(names + strlen(names), sizeof names - strlen(names), " %d", r);
  return cgr__fail(CGR_NOT_READY, "cgr_nccl_create: not here within %d ms to make %s: rank%s, expected all: call it again",
                   n->timeout_ms, n->name, names[0] ? names : " unknown");
}

/* All ranks get rank 0's id, when all have come. */
static cgr_status exchange_id(cgr_nccl *n, const cgr_exchange *e, cgr_nccl_id *id) {
  id_block mine = { CGR__NCCL_MAGIC, 0, { { 0 } } }, all[CGR_MAX_RANKS];
  uint64_t missing = 0;
  if (e->rank == 0)
    mine.status = n->nccl.get_unique_id(&mine.id);
  const uint64_t before = cgr__failures();
  const cgr_status status = e->gather(e->context, &mine, sizeof mine, all, n->timeout_ms, &missing);
  if (status == CGR_NOT_READY)
    return tell_missing(n, missing);
  if (status != CGR_OK)
    return cgr__fail_returned(status == CGR_ERROR_RANK ? status : CGR_ERROR_CALLBACK, "cgr_nccl_create: config.exchange.gather",
                              status, before);
  for (int32_t r = 0; r < e->num_ranks; r++)
    if (all[r].magic != CGR__NCCL_MAGIC)
      return cgr__fail(CGR_ERROR_RANK, "cgr_nccl_create: rank %d is in another call, expected cgr_nccl_create on all ranks", r);
  if (all[0].status != CGR__NCCL_SUCCESS)
    return e->rank == 0 ? cgr__nccl_result(&n->nccl, NULL, "cgr_nccl_create", "ncclGetUniqueId", all[0].status)
                        : cgr__fail(CGR_ERROR_RANK, "cgr_nccl_create: ncclGetUniqueId of rank 0 has returned %d, expected 0",
                                    all[0].status);
  *id = all[0].id;
  return CGR_OK;
}

static cgr_status make_comm(cgr_nccl *n, const cgr_exchange *given) {
  cgr_exchange e;
  cgr_nccl_id id;
  CGR__TRY(cgr__sized_read("cgr_nccl_create: config.exchange", "CGR_EXCHANGE_INIT", given, &e, sizeof e));
  e.num_ranks = e.num_ranks == 0 ? 1 : e.num_ranks;
  if (e.num_ranks < 1 || e.num_ranks > CGR_MAX_RANKS || e.rank < 0 || e.rank >= e.num_ranks || !e.gather)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_nccl_create: config.exchange is rank %d of %d with%s a gather, expected a rank of 1 .. %d with one",
                     e.rank, e.num_ranks, e.gather ? "" : "out", CGR_MAX_RANKS);
  CGR__TRY(exchange_id(n, &e, &id));
  const int result = n->nccl.comm_init_rank(&n->comm, e.num_ranks, id, e.rank);
  const cgr_status status = cgr__nccl_result(&n->nccl, NULL, "cgr_nccl_create", "ncclCommInitRank", result);
  n->comm = status == CGR_OK ? n->comm : NULL;
  return status;
}

static cgr_status ask_comm(cgr_nccl *n) {
  const cgr_nccl_functions *f = &n->nccl;
  static const char function[] = "cgr_nccl_create";
  CGR__TRY(cgr__nccl_result(f, n->comm, function, "ncclGetVersion", f->get_version(&n->version)));
  CGR__TRY(cgr__nccl_result(f, n->comm, function, "ncclCommCount", f->comm_count(n->comm, &n->num_ranks)));
  CGR__TRY(cgr__nccl_result(f, n->comm, function, "ncclCommUserRank", f->comm_user_rank(n->comm, &n->rank)));
  if (n->num_ranks < 1 || n->num_ranks > CGR_MAX_RANKS || n->rank < 0 || n->rank >= n->num_ranks)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_nccl_create: config.comm is rank %d of %d, expected a rank of 1 .. %d", n->rank,
                     n->num_ranks, CGR_MAX_RANKS);
  return CGR_OK;
}

/* The runtime's graphs are gone, and so is the runtime soon. */
static void forget_runtime(void *context) {
  cgr_nccl *n = context;
  pthread_mutex_lock(&n->lock);
  n->runtime = NULL;
  cgr__nccl_free_marks(n);
  pthread_mutex_unlock(&n->lock);
}

static cgr_status register_comm(cgr_nccl *n, cgr_runtime *runtime) {
  cgr_resource resource = CGR_RESOURCE_INIT;
  char name[48];
  (void)snprintf(name, sizeof name, "the communicator %s", n->name);
  resource.name = name;
  resource.gone = forget_runtime;
  resource.context = n;
  resource.allocations = n->marks.numbers ? 2 : 0;
  CGR__TRY(cgr__fail_as("cgr_nccl_create", "cgr_resource_register", cgr_resource_register(runtime, &resource, &n->resource)));
  n->runtime = runtime;
  return CGR_OK;
}

static cgr_status make(cgr_nccl *n, cgr_runtime *runtime, const cgr_nccl_config *given) {
  cgr_nccl_config config;
  CGR__TRY(read_config(given, &config, n));
  CGR__TRY(cgr__fail_as("cgr_nccl_create", "cgr_runtime_device", cgr_runtime_device(runtime, &n->device)));
  if (!n->comm)
    CGR__TRY(make_comm(n, config.exchange));
  CGR__TRY(ask_comm(n));
  if (n->flags & CGR_NCCL_MARKS)
    CGR__TRY(cgr__fail_in("cgr_nccl_create", cgr__nccl_make_marks(n)));
  return register_comm(n, runtime);
}

cgr_status cgr_nccl_create(cgr_runtime *runtime, const cgr_nccl_config *config, cgr_nccl **nccl) {
  CGR__REQUIRE(runtime, "cgr_nccl_create");
  CGR__REQUIRE(nccl, "cgr_nccl_create");
  cgr_nccl *n = calloc(1, sizeof *n);
  if (!n)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_nccl_create: no host memory for %zu bytes", sizeof *n);
  n->magic = CGR__NCCL_MAGIC;
  pthread_mutex_init(&n->lock, NULL);
  pthread_mutex_init(&n->texts_lock, NULL);
  const cgr_status status = make(n, runtime, config);
  if (status == CGR_OK) {
    *nccl = n;
    return CGR_OK;
  }
  char message[400];
  (void)snprintf(message, sizeof message, "%s", cgr_last_message());
  cgr__nccl_free_marks(n);
  const bool is_own = n->comm && config->comm == NULL;
  if (is_own)
    (void)n->nccl.comm_abort(n->comm);
  free(n);
  return cgr__fail(status, "%s", message);
}

cgr_status cgr_nccl_get_info(cgr_nccl *nccl, cgr_nccl_info *info) {
  CGR__TRY(cgr__nccl_check_handle(nccl, "cgr_nccl_get_info"));
  CGR__TRY(cgr__sized_check("cgr_nccl_get_info: info", "CGR_NCCL_INFO_INIT", info));
  cgr_nccl_info full = CGR_NCCL_INFO_INIT;
  full.version = nccl->version;
  full.rank = nccl->rank;
  full.num_ranks = nccl->num_ranks;
  full.aborted = __atomic_load_n(&nccl->aborted, __ATOMIC_ACQUIRE);
  full.comm = full.aborted ? NULL : nccl->comm;
  full.resource = nccl->resource;
  if (nccl->runtime)
    CGR__TRY(cgr__fail_in("cgr_nccl_get_info", cgr_resource_count_graphs(nccl->runtime, nccl->resource, &full.num_graphs)));
  cgr__sized_write(info, &full, sizeof full);
  return CGR_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- ending */

/* False: it has not become that within the time. */
static bool wait_for_value(const int *word, int value, int32_t ms) {
  static const struct timespec pause = { 0, 200000 };
  const double deadline = cgr__now_ms() + ms;
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
    if (cgr__now_ms() >= deadline)
      return false;
    nanosleep(&pause, NULL);
  }
  return true;
}

/* Both ends may wait: for graphs that hold the communicator, for other ranks. */
static void *end_on_thread(void *context) {
  cgr_nccl *n = context;
  if (__atomic_load_n(&n->aborted, __ATOMIC_SEQ_CST)) {
    (void)wait_for_value(&n->users, 0, USERS_MS); /* the abort frees what they use */
    n->result = n->nccl.comm_abort(n->comm);
  } else {
    n->result = n->nccl.comm_destroy(n->comm);
  }
  __atomic_store_n(&n->ended, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Under the lock. */
static cgr_status begin_end(cgr_nccl *n, const char *function) {
  if (n->ends)
    return CGR_OK;
  const int error = pthread_create(&n->thread, NULL, end_on_thread, n);
  if (error)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "%s: no thread to end %s on (pthread_create has returned %d)", function, n->name,
                     error);
  n->ends = true;
  return CGR_OK;
}

/* Under the lock: NCCL is asked for its message, too. */
static cgr_status ask_for_error(const cgr_nccl *n) {
  int error = CGR__NCCL_SUCCESS;
  if (n->ends || __atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE))
    return cgr__nccl_refuse_aborted(n, "cgr_nccl_check");
  CGR__TRY(cgr__nccl_result(&n->nccl, n->comm, "cgr_nccl_check", "ncclCommGetAsyncError",
                            n->nccl.comm_get_async_error(n->comm, &error)));
  if (error == CGR__NCCL_SUCCESS || error == CGR__NCCL_IN_PROGRESS)
    return CGR_OK;
  char what[64];
  (void)snprintf(what, sizeof what, "a collective of %s", n->name);
  return cgr__nccl_result(&n->nccl, n->comm, "cgr_nccl_check", what, error);
}

cgr_status cgr_nccl_check(cgr_nccl *nccl) {
  CGR__TRY(cgr__nccl_check_handle(nccl, "cgr_nccl_check"));
  pthread_mutex_lock(&nccl->lock);
  const cgr_status status = ask_for_error(nccl);
  pthread_mutex_unlock(&nccl->lock);
  return status;
}

cgr_status cgr_nccl_abort(cgr_nccl *nccl, const char *why) {
  CGR__TRY(cgr__nccl_check_handle(nccl, "cgr_nccl_abort"));
  CGR__REQUIRE(why, "cgr_nccl_abort");
  char cause[256];
  (void)snprintf(cause, sizeof cause, "cgr_nccl_abort of %s: %.170s", nccl->name, why);
  pthread_mutex_lock(&nccl->lock);
  cgr_status status = CGR_OK;
  if (!nccl->ends) {
    if (nccl->runtime) /* first: no step that ends because of the abort is taken for a good one */
      (void)cgr_runtime_abandon(nccl->runtime, cause);
    __atomic_store_n(&nccl->aborted, 1, __ATOMIC_SEQ_CST);
    status = begin_end(nccl, "cgr_nccl_abort");
  }
  pthread_mutex_unlock(&nccl->lock);
  return status;
}

/* Takes it from the runtime, unless that is gone or still uses it. */
static cgr_status leave_runtime(cgr_nccl *n) {
  if (!n->runtime)
    return CGR_OK;
  const cgr_status status =
      cgr__fail_as("cgr_nccl_destroy", "cgr_resource_unregister", cgr_resource_unregister(n->runtime, n->resource));
  if (status == CGR_ERROR_DEAD)
    return cgr__fail(CGR_ERROR_STATE, "cgr_nccl_destroy: the runtime of %s is dead, expected it to be destroyed before", n->name);
  if (status == CGR_OK)
    forget_runtime(n);
  return status;
}

static cgr_status end_comm(cgr_nccl *n) {
  const bool aborted = __atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE) != 0;
  if ((n->flags & CGR_NCCL_KEEP) && !aborted)
    return CGR_OK;
  pthread_mutex_lock(&n->lock);
  const cgr_status begun = begin_end(n, "cgr_nccl_destroy");
  pthread_mutex_unlock(&n->lock);
  CGR__TRY(begun);
  if (!wait_for_value(&n->ended, 1, n->timeout_ms))
    return cgr__fail(CGR_NOT_READY, "cgr_nccl_destroy: %s has not returned within %d ms for %s, expected it to: call it again",
                     aborted ? "ncclCommAbort" : "ncclCommDestroy", n->timeout_ms, n->name);
  pthread_join(n->thread, NULL);
  return CGR_OK;
}

cgr_status cgr_nccl_destroy(cgr_nccl *nccl) {
  if (!nccl)
    return CGR_OK;
  CGR__TRY(cgr__nccl_check_handle(nccl, "cgr_nccl_destroy"));
  CGR__TRY(leave_runtime(nccl));
  if (!nccl->ends)
    cgr__nccl_forget_buffers(nccl);
  CGR__TRY(end_comm(nccl));
  const bool ended = nccl->ends;
  const int result = nccl->result;
  const cgr_nccl_functions functions = nccl->nccl;
  pthread_mutex_destroy(&nccl->lock);
  pthread_mutex_destroy(&nccl->texts_lock);
  nccl->magic = 0;
  free(nccl);
  if (result == CGR__NCCL_IN_PROGRESS) /* of one that does not block: NCCL goes on by itself */
    return CGR_OK;
  return ended ? cgr__nccl_result(&functions, NULL, "cgr_nccl_destroy", "ending the communicator", result) : CGR_OK;
}
