/* NCCL in steps: what the parts of the adapter share.
 *
 *   functions.c      NCCL's functions, its failures and its numbers      communicator.c  how one is made, and how it ends
 *   record.c         collectives in `record`                            where.c         which collective the device is in
 *   buffers.c        memory that NCCL knows */
#ifndef CGR_INTEROP_NCCL_NCCL_H
#define CGR_INTEROP_NCCL_NCCL_H

#include <pthread.h>
#include <stdbool.h>

#include "cgr/interop/nccl.h"

#define CGR__NCCL_MAGIC 0x4e43434cu /* "NCCL" */
#define CGR__NCCL_SUCCESS 0
#define CGR__NCCL_IN_PROGRESS 7
#define CGR__NCCL_NAME_BYTES 24
#define CGR__NCCL_LABEL_BYTES 32
#define CGR__NCCL_TEXT_BYTES 80 /* "tp all-reduce logits" */
#define CGR__NCCL_MAX_TEXTS 1024
#define CGR__NCCL_MAX_BUFFERS 64
#define CGR__NCCL_MAX_CALLS 128
#define CGR__NCCL_MAX_CALLS_BETWEEN 32

/* A collective as it is kept at a break. */
typedef struct cgr__nccl_call {
  const void *send;
  void *recv;
  uint64_t count;
  int32_t kind, dtype, op, peer; /* dtype and op: NCCL's numbers */
  cudaStream_t stream;
  int32_t text, reserved; /* index of its name */
} cgr__nccl_call;

typedef struct cgr__nccl_buffer {
  void *handle; /* NULL: no buffer */
  bool symmetric;
} cgr__nccl_buffer;

/* Where the device writes which collective it is in: copies from `numbers`, which holds 0, 1, 2, ... */
typedef struct cgr__nccl_marks {
  const uint32_t *numbers; /* device, [2 * CGR__NCCL_MAX_TEXTS] */
  uint32_t *word;          /* pinned: i, it is in text i; CGR__NCCL_MAX_TEXTS + i, after it */
  bool by_host;            /* the device is the host: functions write it, as one word */
} cgr__nccl_marks;

struct cgr_nccl {
  uint32_t magic, flags;
  cgr_nccl_functions nccl;
  ncclComm_t comm; /* it ends on the thread below, or stays the engine's */
  int32_t rank, num_ranks, version, timeout_ms;
  cgr_device *device;
  uint64_t resource;
  char name[CGR__NCCL_NAME_BYTES];
  cgr__nccl_buffer buffer[CGR__NCCL_MAX_BUFFERS];
  cgr__nccl_marks marks; /* NULLs: none */
  uint32_t enqueued;     /* text of the last collective that the host has enqueued, plus 1. Atomic */

  pthread_mutex_t lock; /* of what another thread's abort and the runtime's end both look at */
  cgr_runtime *runtime; /* NULL: it is gone */
  int aborted;          /* atomic */
  int users;            /* atomic: threads that are in a call of NCCL's with the communicator */
  bool ends;            /* a thread ends the communicator */
  pthread_t thread;
  int ended; /* atomic: it has */
  int result;

  pthread_mutex_t texts_lock;
  uint32_t num_texts; /* atomic: those below it are there for good */
  char text[CGR__NCCL_MAX_TEXTS][CGR__NCCL_TEXT_BYTES];
};

/* functions.c: the status of NCCL's result, with its message; `what` names the call. CGR_OK for success. */
cgr_status cgr__nccl_result(const cgr_nccl_functions *nccl, ncclComm_t comm, const char *function, const char *what, int result);
/* Reads a table of functions and checks that those which are needed are there. */
cgr_status cgr__nccl_read_functions(const cgr_nccl_functions *given, bool makes_comm, cgr_nccl_functions *functions);
/* Whether there is no control character in a name. */
bool cgr__nccl_is_plain(const char *text);
/* NCCL's number of a dtype; -1: it has none. */
int32_t cgr__nccl_dtype(int32_t dtype);
cgr_status cgr__nccl_check_handle(const cgr_nccl *nccl, const char *function);
cgr_status cgr__nccl_refuse_aborted(const cgr_nccl *nccl, const char *function);
/* Around calls of NCCL's with the communicator that do not hold the lock: its abort waits for their end. */
cgr_status cgr__nccl_enter(cgr_nccl *nccl, const char *function);
void cgr__nccl_leave(cgr_nccl *nccl);

/* buffers.c: unregisters all, without a word. */
void cgr__nccl_forget_buffers(cgr_nccl *nccl);

/* where.c: the index of a collective's name, made at need; the last one of all if there are too many. */
int32_t cgr__nccl_text(cgr_nccl *nccl, int32_t kind, const char *label);
cgr_status cgr__nccl_make_marks(cgr_nccl *nccl);
void cgr__nccl_free_marks(cgr_nccl *nccl);
/* Enqueues that the device is in a collective, or after it. */
cgr_status cgr__nccl_mark(cgr_nccl *nccl, int32_t text, bool after, cudaStream_t stream);

#endif
