/* The types of the host device: streams are queues, capture records, replay executes. Internal to devices/host/; listed from
 * the bottom up, each file using only those above it in this list:
 *   handles  live streams and events behind their handles, failures, the random generator
 *   run      executing one item of work, or a graph in the order that the schedule picks
 *   pool     operations, allocated in chunks
 *   nodes    a graph under construction, and its orders
 *   queue    the streams' queues, and when their operations run
 *   capture  the rules of capture
 *   memory, stream, event, waiter, enqueue, graph: the operations of the table
 *   device   opening, closing, the table itself
 *
 * - One mutex per device (`lock`) guards every field below. Under ASYNC a worker drops it while it executes an operation;
 *   under the other schedules the calling thread executes with the lock held, so a host function must not call back.
 * - Every operation of a stream has a number: `enqueued` counts those put in, `completed` those done. An event is the pair
 *   (stream, number): nothing points at events, so destroying one is safe at any time.
 * - Streams and events are recycled, never freed before close: numbers from a stream's earlier use count as completed, and a
 *   destroyed handle is recognised instead of being read after free.
 * - Operations live in pools that only grow: after warm-up nothing is allocated.
 *
 * Errors of capture carry CUDA's codes in last_raw (enum host_raw). */
#ifndef CGR_DEVICES_HOST_TYPES_H
#define CGR_DEVICES_HOST_TYPES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/allocations.h"
#include "devices/device.h"

/* What CUDA would answer. */
enum host_raw {
  HOST_RAW_INVALID_VALUE = 1,
  HOST_RAW_NO_MEMORY = 2,
  HOST_RAW_INVALID_HANDLE = 400,
  HOST_RAW_ILLEGAL_STATE = 401,       /* begin on a capturing stream; end on one that does not capture */
  HOST_RAW_CAPTURE_UNSUPPORTED = 900, /* the call is not allowed while the stream or the thread captures */
  HOST_RAW_CAPTURE_INVALIDATED = 901, /* the capture was invalidated by an earlier error */
  HOST_RAW_CAPTURE_MERGE = 902,       /* two captures would become one */
  HOST_RAW_CAPTURE_UNMATCHED = 903,   /* ended on a stream other than the one it began on */
  HOST_RAW_CAPTURE_UNJOINED = 904,    /* a forked stream has work that the first stream does not wait for */
  HOST_RAW_CAPTURE_ISOLATION = 905,   /* a captured stream would wait for work outside the capture */
  HOST_RAW_CAPTURED_EVENT = 907,      /* host-side use of, or an outside wait for, an event recorded in a capture */
  HOST_RAW_CAPTURE_WRONG_THREAD = 908 /* ended by a thread that did not begin it */
};

enum host_work_kind { HOST_WORK_COPY, HOST_WORK_FILL, HOST_WORK_CALL };

/* One thing to execute; the same for an enqueued operation and for a node of a graph. */
struct host_work {
  enum host_work_kind kind;
  const char *name; /* CALL: the kernel's; NULL: a host function */
  uint32_t width;   /* FILL: bytes of an element */
  uint64_t value;   /* FILL */
  size_t count;     /* COPY: bytes; FILL: elements */
  void *dst;
  const void *src;
  void (*function)(const void *args);
  const void *args;
};

enum host_op_kind { HOST_OP_WORK, HOST_OP_WAIT, HOST_OP_LAUNCH };

struct host_op {
  struct host_op *next;
  enum host_op_kind kind;
  uint32_t pool;              /* index of the pool that owns it */
  struct host_work work;      /* WORK */
  struct host_stream *target; /* WAIT: until target->completed >= number */
  uint64_t number;
  cgr__exec *exec;                   /* LAUNCH */
  _Alignas(16) unsigned char args[]; /* as many bytes as the pool says */
};

struct host_chunk {
  struct host_chunk *next;
};

struct host_pool {
  size_t args_bytes;
  size_t grow; /* operations per chunk */
  struct host_op *free;
  struct host_chunk *chunks;
};

/* Node numbers of a capture that later work depends on; no duplicates. */
struct host_deps {
  uint32_t *ids;
  uint32_t count, capacity;
};

struct host_node {
  struct host_work work; /* args: heap, owned by the node */
  size_t args_size;
  uint32_t first_dep, num_deps; /* in cgr__graph.deps; every one is smaller than the node's own number */
};

/* Nodes move while a graph grows: outside they go by their numbers. */
static inline const void *cgr__host_node_handle(uint32_t number) { return (const void *)(uintptr_t)(number + 1); }

/* Immutable once capture_end has given it out; shared by its execs through `refs`. */
struct cgr__graph {
  uint32_t refs;
  uint32_t num_nodes, node_capacity;
  uint32_t num_deps, dep_capacity;
  struct host_node *nodes;
  uint32_t *deps;
  uint32_t *latest; /* order in which each node runs as late as it can */
};

struct cgr__exec {
  cgr__graph *graph;
  struct host_stream *last; /* its last launch: one exec never runs twice at once */
  uint64_t last_number;
  uint32_t *dependents; /* RANDOM: dependents of node i are [first_dependent[i], first_dependent[i + 1]) */
  uint32_t *first_dependent;
  uint32_t *waiting, *ready; /* scratch of one run */
};

struct host_capture {
  struct host_capture *next;
  uint64_t id;
  pthread_t owner;
  struct host_stream *origin;
  cgr__graph *graph;
  bool invalid;
};

struct host_stream {
  struct host_stream *next; /* of all streams ever made */
  struct host_device *dev;
  bool alive, stop, asleep;
  struct host_op *head, *tail;
  uint64_t enqueued, completed;
  pthread_t worker; /* ASYNC, while alive */
  pthread_cond_t wake;
  struct host_capture *capture;
  struct host_deps deps; /* what the next node of this stream depends on */
};

struct cgr_event {
  cgr__event *next; /* of all events ever made */
  struct host_device *dev;
  bool alive;
  struct host_stream *stream; /* NULL: never recorded, hence complete */
  uint64_t number;
  uint64_t capture; /* id of the capture in which it was last recorded, or 0 */
  struct host_deps deps;
};

struct cgr__waiter {
  cgr__waiter *next; /* of those that have not been destroyed */
  uint64_t *word;
};

struct host_device {
  struct cgr_device head;
  int32_t schedule; /* enum cgr_host_schedule */
  uint64_t random;
  pthread_mutex_t lock;
  pthread_cond_t done;  /* some operation has completed */
  uint32_t num_waiting; /* threads in a wait for `done` */
  struct host_stream *streams;
  cgr__event *events;
  cgr__waiter *waiters;
  struct host_capture *captures;
  uint64_t num_captures;
  struct cgr__allocations allocations; /* with a lock of its own */
  struct host_pool pools[2];
};

static inline struct host_device *cgr__host_of(cgr_device *dev) { return (struct host_device *)(void *)dev; }

#endif
