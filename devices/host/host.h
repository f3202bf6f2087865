/* The host device: streams are queues, capture records, replay executes. Internal to devices/host/.
 *
 * - One mutex per device (`lock`) guards every field below. Under ASYNC a worker drops it while it executes an operation;
 *   under the other schedules the calling thread executes with the lock held, so a host function must not call back.
 * - Every operation of a stream has a number: `enqueued` counts those put in, `completed` those done. An event is the pair
 *   (stream, number): nothing points at events, so that destroying one is safe at any time.
 * - Streams and events are recycled, never freed before close: a number of an earlier life is a completed number, and a
 *   destroyed handle is recognised instead of being read after free.
 * - Operations live in pools that only grow: after warm-up nothing is allocated.
 *
 * Errors of capture carry CUDA's codes in last_raw (enum host_raw). */
#ifndef CGR_DEVICES_HOST_HOST_H
#define CGR_DEVICES_HOST_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/device.h"

#define CGR__HOST_MAX_ARGS 4096u
#define CGR__HOST_SMALL_ARGS 256u

/* What CUDA would answer. */
enum host_raw {
  HOST_RAW_INVALID_VALUE = 1,
  HOST_RAW_NO_MEMORY = 2,
  HOST_RAW_INVALID_HANDLE = 400,
  HOST_RAW_ILLEGAL_STATE = 401,       /* begin on a capturing stream; end on one that does not capture */
  HOST_RAW_CAPTURE_UNSUPPORTED = 900, /* the call is not allowed while the stream or the thread captures */
  HOST_RAW_CAPTURE_INVALIDATED = 901, /* the capture was spoilt by an earlier error */
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
  int byte;
  void *dst;
  const void *src;
  size_t bytes;
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

struct cgr__event {
  cgr__event *next; /* of all events ever made */
  struct host_device *dev;
  bool alive;
  struct host_stream *stream; /* NULL: never recorded, hence complete */
  uint64_t number;
  uint64_t capture; /* id of the capture that it was last recorded in, or 0 */
  struct host_deps deps;
};

struct host_device {
  struct cgr_device head;
  uint32_t schedule; /* enum cgr_host_schedule */
  uint64_t random;
  pthread_mutex_t lock;
  pthread_cond_t done;  /* some operation has completed */
  uint32_t num_waiting; /* threads in a wait for `done` */
  struct host_stream *streams;
  cgr__event *events;
  struct host_capture *captures;
  uint64_t num_captures;
  struct host_pool pools[2];
};

static inline struct host_device *cgr__host_of(cgr_device *dev) { return (struct host_device *)(void *)dev; }

/* Keeps `raw` for messages and returns `error`. */
int cgr__host_fail(struct host_device *host, int error, int raw);
/* The live stream or event behind a handle of this device, or NULL. */
struct host_stream *cgr__host_stream(struct host_device *host, cudaStream_t stream);

/* pool.c */
int cgr__host_pools_init(struct host_device *host);
void cgr__host_pools_free(struct host_device *host);
struct host_op *cgr__host_op_take(struct host_device *host, size_t args_bytes);
void cgr__host_op_give(struct host_device *host, struct host_op *op);

/* queue.c: all with the lock held */
void cgr__host_push(struct host_device *host, struct host_stream *stream, struct host_op *op);
void cgr__host_progress(struct host_device *host, struct host_stream *stream); /* what the schedule runs at an enqueue */
void cgr__host_wait(struct host_device *host, struct host_stream *stream, uint64_t number);
int cgr__host_query(struct host_device *host, struct host_stream *stream, uint64_t number);
int cgr__host_push_wait(struct host_device *host, struct host_stream *stream, struct host_stream *target, uint64_t number);
uint64_t cgr__host_random(struct host_device *host);
void *cgr__host_worker(void *stream);
void cgr__host_work_run(const struct host_work *work);

/* stream.c, event.c, enqueue.c, memory.c */
int cgr__host_stream_create(cgr_device *dev, cudaStream_t *stream);
int cgr__host_stream_destroy(cgr_device *dev, cudaStream_t stream);
int cgr__host_stream_sync(cgr_device *dev, cudaStream_t stream);
int cgr__host_stream_query(cgr_device *dev, cudaStream_t stream);
void cgr__host_stream_retire(struct host_device *host, struct host_stream *stream); /* lock held; drains and joins */
int cgr__host_event_create(cgr_device *dev, cgr__event **event);
int cgr__host_event_destroy(cgr_device *dev, cgr__event *event);
int cgr__host_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__host_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__host_event_query(cgr_device *dev, cgr__event *event);
int cgr__host_event_sync(cgr_device *dev, cgr__event *event);
int cgr__host_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
int cgr__host_fill(cgr_device *dev, void *dst, int byte, size_t bytes, cudaStream_t stream);
int cgr__host_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
int cgr__host_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream);
int cgr__host_preload(cgr_device *dev, const cgr__kernel *kernel);
int cgr__host_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr);
int cgr__host_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind);
int cgr__host_info(cgr_device *dev, cgr_device_info *info);

/* capture.c: the second group with the lock held */
int cgr__host_capture_begin(cgr_device *dev, cudaStream_t stream);
int cgr__host_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);
int cgr__host_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing);
int cgr__host_refuse_capturing_thread(struct host_device *host); /* 0, or CAPTURE_ILLEGAL and its captures are spoilt */
int cgr__host_refuse_capturing_stream(struct host_device *host, struct host_stream *stream); /* the same for a stream */
struct host_capture *cgr__host_capture_find(struct host_device *host, uint64_t id);
int cgr__host_capture_spoil(struct host_device *host, struct host_capture *capture, int error, int raw);
int cgr__host_capture_add(struct host_device *host, struct host_stream *stream, const struct host_work *work, size_t args_size);
int cgr__host_capture_event(struct host_device *host, struct host_stream *stream, cgr__event *event);
int cgr__host_capture_wait(struct host_device *host, struct host_stream *stream, cgr__event *event);
void cgr__host_capture_drop(struct host_device *host, struct host_capture *capture);

/* nodes.c: a graph under construction, then its orders */
cgr__graph *cgr__host_graph_new(void);
void cgr__host_graph_unref(cgr__graph *graph);
bool cgr__host_deps_add(struct host_deps *deps, uint32_t id);
bool cgr__host_deps_copy(struct host_deps *deps, const struct host_deps *from);
bool cgr__host_graph_add(cgr__graph *graph, const struct host_work *work, size_t args_size, const struct host_deps *deps);
bool cgr__host_graph_covers(const cgr__graph *graph, const struct host_deps *ends, const struct host_deps *deps, bool *covers);
bool cgr__host_graph_order(cgr__graph *graph, const struct host_deps *ends);

/* graph.c */
int cgr__host_graph_destroy(cgr_device *dev, cgr__graph *graph);
int cgr__host_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info);
int cgr__host_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream);
int cgr__host_exec_destroy(cgr_device *dev, cgr__exec *exec);
void cgr__host_exec_run(struct host_device *host, cgr__exec *exec);

#endif
