/* NCCL in the steps of a runtime: communicators that graphs hold, collectives in `record`, and what happens when a rank is
 * missing. Nothing of NCCL is linked: its functions come from the engine. Its types are those of nccl.h, which may be included
 * too, before or after. Not included by cgr.h. */
#ifndef CGR_INTEROP_NCCL_H
#define CGR_INTEROP_NCCL_H

#include "cgr/collectives.h"
#include "cgr/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The type that nccl.h defines; repeating the typedef is legal. */
typedef struct ncclComm *ncclComm_t;

/* ------------------------------------------------------------------------------------------------------------- functions */

/* ncclUniqueId, which is passed by value. */
typedef struct cgr_nccl_id {
  char internal[128];
} cgr_nccl_id;

/* NCCL's functions, each as nccl.h declares it; an int in place of its enums. */
typedef struct cgr_nccl_functions {
  uint32_t size;
  int32_t reserved; /* 0 */
  int (*get_version)(int *version);
  int (*get_unique_id)(cgr_nccl_id *id);                                               /* optional: only for cgr_nccl_create */
  int (*comm_init_rank)(ncclComm_t *comm, int num_ranks, cgr_nccl_id id, int rank);    /* without a communicator */
  int (*comm_destroy)(ncclComm_t comm);
  int (*comm_abort)(ncclComm_t comm);
  int (*comm_get_async_error)(ncclComm_t comm, int *error);
  int (*comm_count)(const ncclComm_t comm, int *count);
  int (*comm_user_rank)(const ncclComm_t comm, int *rank);
  const char *(*get_error_string)(int result);
  const char *(*get_last_error)(ncclComm_t comm);                                      /* optional */
  int (*group_start)(void);
  int (*group_end)(void);
  int (*all_reduce)(const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t comm, cudaStream_t stream);
  int (*all_gather)(const void *send, void *recv, size_t count, int dtype, ncclComm_t comm, cudaStream_t stream);
  int (*reduce_scatter)(const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t comm, cudaStream_t stream);
  int (*broadcast)(const void *send, void *recv, size_t count, int dtype, int root, ncclComm_t comm, cudaStream_t stream);
  int (*send)(const void *send, size_t count, int dtype, int peer, ncclComm_t comm, cudaStream_t stream);
  int (*recv)(void *recv, size_t count, int dtype, int peer, ncclComm_t comm, cudaStream_t stream);
  int (*comm_register)(const ncclComm_t comm, void *base, size_t bytes, void **handle); /* these four are optional */
  int (*comm_deregister)(const ncclComm_t comm, void *handle);
  int (*comm_window_register)(ncclComm_t comm, void *base, size_t bytes, void **window, int flags);
  int (*comm_window_deregister)(ncclComm_t comm, void *window);
  int (*mem_alloc)(void **memory, size_t bytes); /* optional: memory for windows, which the engine uses; cgr does not call them */
  int (*mem_free)(void *memory);
} cgr_nccl_functions;
#define CGR_NCCL_FUNCTIONS_INIT                                                                                            \
  { (uint32_t)sizeof(cgr_nccl_functions), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* Finds them by their names: `find` is dlsym, and `library` what the engine's dlopen("libnccl.so.2") returned, or RTLD_DEFAULT
 * if the engine is linked with NCCL. The library must stay open. CGR_ERROR_UNSUPPORTED names the function that is not there,
 * unless it is an optional one.
 * Threads any · Capture ok · Sync never · Alloc never */
typedef void *(*cgr_nccl_find_function)(void *library, const char *name);
CGR_API cgr_status cgr_nccl_find(cgr_nccl_find_function find, void *library, cgr_nccl_functions *functions);

/* --------------------------------------------------------------------------------------------------------- communicators */

typedef enum cgr_nccl_flag {
  CGR_NCCL_KEEP = 1, /* `comm` stays the engine's: cgr_nccl_destroy leaves it. cgr_nccl_abort ends it all the same */
  CGR_NCCL_MARKS = 2 /* the device notes which collective it is in, for cgr_nccl_where: two copies of 4 bytes around each */
} cgr_nccl_flag;

typedef struct cgr_nccl_config {
  uint32_t size;
  uint32_t flags;                      /* CGR_NCCL_* */
  const cgr_nccl_functions *functions; /* copied */
  ncclComm_t comm;                     /* of the engine, on the runtime's device; NULL: it is made, over `exchange` */
  const cgr_exchange *exchange;        /* of the same ranks: all of them make their communicators together, in the same order.
                                          Used by cgr_nccl_create alone; NULL with a comm */
  const char *name;                    /* for messages and labels: 1 .. 23 characters ("tp"); NULL: "nccl" */
  int32_t timeout_ms;                  /* of waits for other ranks, and for the end of an abort; 0: 30,000 */
  int32_t reserved;                    /* 0 */
} cgr_nccl_config;
#define CGR_NCCL_CONFIG_INIT { (uint32_t)sizeof(cgr_nccl_config), 0, NULL, NULL, NULL, NULL, 0, 0 }

/* A communicator in the steps of a runtime. */
typedef struct cgr_nccl cgr_nccl;

/* Registers a communicator as a resource of the runtime. If it makes one: the runtime's GPU must be the calling thread's current
 * CUDA device; it first waits for the other ranks (CGR_NOT_READY names those that are missing; nothing is made), then calls
 * ncclCommInitRank, which waits for them without a timeout.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_nccl_create(cgr_runtime *runtime, const cgr_nccl_config *config, cgr_nccl **nccl);
/* Destroys the communicator, unless it is kept, or waits for the end of its abort. CGR_ERROR_STATE, and nothing is done, while
 * graphs or steps of the runtime use it: release the graphs or destroy the runtime first, both are right. After an abort the
 * runtime goes first. CGR_NOT_READY: the abort has not ended within timeout_ms; call it again. NULL is legal.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_nccl_destroy(cgr_nccl *nccl);

typedef struct cgr_nccl_info {
  uint32_t size;
  int32_t version;    /* of NCCL, as ncclGetVersion: 22703 */
  int32_t rank, num_ranks;
  ncclComm_t comm;    /* NULL after an abort */
  uint64_t resource;  /* of cgr_resource_register, for collectives that the engine calls itself: cgr_record_use_resource */
  int32_t num_graphs; /* of the runtime that hold it */
  int32_t aborted;
} cgr_nccl_info;
#define CGR_NCCL_INFO_INIT { (uint32_t)sizeof(cgr_nccl_info), 0, 0, 0, NULL, 0, 0, 0 }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_nccl_get_info(cgr_nccl *nccl, cgr_nccl_info *info);

/* Registers memory of the device with NCCL, so that collectives on it need no copies: ncclCommRegister, or with `symmetric` not
 * 0 ncclCommWindowRegister (NCCL_WIN_COLL_SYMMETRIC), which all ranks call together, for memory of ncclMemAlloc.
 * CGR_ERROR_UNSUPPORTED if this NCCL has not the function; the collectives work without it. At most 64 buffers.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_nccl_register_buffer(cgr_nccl *nccl, void *base, size_t bytes, int32_t symmetric, int32_t *buffer);
/* CGR_ERROR_STATE as for cgr_nccl_destroy, which unregisters those that are left.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_nccl_unregister_buffer(cgr_nccl *nccl, int32_t buffer);

/* ----------------------------------------------------------------------------------------------------------- collectives */

typedef enum cgr_nccl_kind {
  CGR_NCCL_ALL_REDUCE = 1,
  CGR_NCCL_ALL_GATHER = 2,
  CGR_NCCL_REDUCE_SCATTER = 3,
  CGR_NCCL_BROADCAST = 4,
  CGR_NCCL_SEND = 5,
  CGR_NCCL_RECV = 6,
  CGR_NCCL_ALL_TO_ALL = 7
} cgr_nccl_kind;

typedef enum cgr_nccl_op {
  CGR_NCCL_SUM = 0,
  CGR_NCCL_PRODUCT = 1,
  CGR_NCCL_MAX = 2,
  CGR_NCCL_MIN = 3,
  CGR_NCCL_AVERAGE = 4
} cgr_nccl_op;

typedef struct cgr_nccl_call {
  uint32_t size;
  int32_t kind;        /* cgr_nccl_kind */
  const void *send;    /* of the device: [count], of REDUCE_SCATTER and ALL_TO_ALL [num_ranks][count]. Of RECV NULL, and of
                          BROADCAST only the root's counts */
  void *recv;          /* [count], of ALL_GATHER and ALL_TO_ALL [num_ranks][count]; of SEND NULL. It may be `send` where NCCL
                          says so; not for ALL_TO_ALL */
  uint64_t count;      /* elements; from the key alone, as every launch */
  int32_t dtype;       /* cgr_dtype, one that NCCL has */
  int32_t op;          /* cgr_nccl_op; of kinds that do not reduce 0 */
  int32_t peer;        /* rank: the root of BROADCAST, the other one of SEND and RECV; else 0 */
  int32_t reserved;    /* 0 */
  const char *label;   /* what it is for: at most 31 characters ("logits"); NULL: its kind alone. A communicator has at most 1023
                          different ones; further collectives share the last. Copied */
  cudaStream_t stream; /* a branch forked from the recorder's stream; NULL: that stream */
} cgr_nccl_call;
#define CGR_NCCL_CALL_INIT { (uint32_t)sizeof(cgr_nccl_call), 0, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL }

/* Enqueues 1 .. 128 collectives as one group of NCCL's, on the step's stream or on a branch (one for all of them), in FULL and in
 * the pieces of PIECEWISE steps; a graph holds the communicator. All ranks record the same collectives in the same order. In a
 * profiler's ranges and among the labels of graphs it is called after the communicator, kind and label: "tp all-reduce logits".
 * CGR_ERROR_DEVICE and others: NCCL's own failure, with its message; cgr_last_device_code is then its ncclResult_t.
 * Threads one · Capture adds · Sync never · Alloc never (NCCL's own: cold) */
CGR_API cgr_status cgr_nccl_record(cgr_recorder *recorder, cgr_nccl *nccl, const cgr_nccl_call *calls, int32_t num_calls);
/* The same between two pieces, as cgr_record_call: a PIECEWISE capture breaks there, and every replay makes the calls anew. At
 * most 32 collectives, on the recorder's stream.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_nccl_record_between(cgr_recorder *recorder, cgr_nccl *nccl, const cgr_nccl_call *calls, int32_t num_calls);

/* Compares the steps of all ranks on the device: cgr_record_fingerprint into the last place of `memory`, an all-gather, and
 * cgr_record_compare_fingerprints. First in `record`, so that ranks which replay different graphs meet in it. `memory` is of the
 * device, [num_ranks + 1][CGR_FINGERPRINT_BYTES] at a multiple of 16 bytes, for this alone. `inputs` and `sequence` as in
 * cgr_fingerprint.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_nccl_record_comparison(cgr_recorder *recorder, cgr_nccl *nccl, void *memory, int32_t inputs,
                                              const int32_t *sequence);

/* ----------------------------------------------------------------------------------------------------- when a rank is missing */

/* Asks NCCL whether the communicator has failed since (ncclCommGetAsyncError): CGR_ERROR_RANK if another rank has, with NCCL's
 * message. Nothing is aborted.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_nccl_check(cgr_nccl *nccl);

/* Ends the communicator: the runtime is dead with `why` as its cause (cgr_runtime_abandon), and ncclCommAbort lets collectives
 * that wait on the device go, on a thread of its own, since it ends only when the graphs are gone. Then destroy the runtime, and
 * the communicator. The second call does nothing.
 * Threads any · Capture no · Sync never · Alloc cold */
CGR_API cgr_status cgr_nccl_abort(cgr_nccl *nccl, const char *why);

/* The collective that the device is in, or has been in last, as text: "in tp all-reduce logits" or "after ...". With
 * CGR_NCCL_MARKS by what the device has noted; without, the last that the host has enqueued, and no graph tells of its own. For
 * cgr_rank_watch.where, which has this type; `nccl` is a cgr_nccl.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_nccl_where(void *nccl, char *out, size_t capacity);

/* Name ("all-reduce", "max", "keep"); static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_nccl_kind_name(cgr_nccl_kind kind);
CGR_API const char *cgr_nccl_op_name(cgr_nccl_op op);
CGR_API const char *cgr_nccl_flag_name(cgr_nccl_flag flag);

#ifdef __cplusplus
}
#endif
#endif
