/* Devices: memory, streams, copies and host functions, on a GPU or on the host.
 *
 * An engine with CUDA streams and memory of its own needs only cgr_device_open and cgr_device_close. An engine that also runs on
 * the host device, where there is no CUDA, uses the other functions for its streams, memory and "kernels".
 *
 * A call touches no GPU but its own, creates no context on another one, and leaves the calling thread's current CUDA device and
 * its pending CUDA error as they were.
 *
 * No device survives fork(). In the child, a call with a device, stream, event or runtime of the parent's returns CGR_ERROR_DEAD
 * if it would reach the device, on the host device too; destroying succeeds and gives nothing back. The child may open a host
 * device, and a GPU if the parent has not used CUDA. */
#ifndef CGR_DEVICE_H
#define CGR_DEVICE_H

#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The type that CUDA's own headers define; repeating the typedef is legal. */
typedef struct CUstream_st *cudaStream_t;

typedef struct cgr_device cgr_device;
typedef struct cgr_event cgr_event;
typedef struct cgr_device_layer cgr_device_layer;

/* ------------------------------------------------------------------------------------------------------ opening a device */

typedef enum cgr_device_kind { CGR_DEVICE_KIND_HOST = 1, CGR_DEVICE_KIND_CUDA = 2 } cgr_device_kind;

/* When the host device executes what was enqueued. A program that synchronises correctly works with all of them; LATEST and
 * RANDOM expose the errors of one that does not. */
typedef enum cgr_host_schedule {
  CGR_SCHEDULE_ASYNC = 0,    /* a worker thread per stream */
  CGR_SCHEDULE_EARLIEST = 1, /* in the call that enqueues, as soon as its dependencies are met */
  CGR_SCHEDULE_LATEST = 2,   /* only when a thread waits or queries */
  CGR_SCHEDULE_RANDOM = 3    /* a seeded choice at each call */
} cgr_host_schedule;

/* How a thread waits for a step (cgr_config.wait_mode). Blocking costs no processor while the thread sleeps, and waking it takes
 * some microseconds. With a GPU that has no stream memory operations of 64 bits, the thread instead wakes every 20 to 100
 * microseconds and looks. */
typedef enum cgr_wait_mode {
  CGR_WAIT_DEFAULT = 0, /* CUDA: spins for 10 ms, then blocks; host: yields for 50 microseconds, then blocks */
  CGR_WAIT_SPIN = 1,    /* never gives its processor up; pauses as the architecture advises */
  CGR_WAIT_YIELD = 2,   /* lets other threads run between two looks */
  CGR_WAIT_BLOCK = 3    /* sleeps at once */
} cgr_wait_mode;

/* Called for each violation that a device layer, or a runtime over it, finds, before the call that finds it returns; `message`
 * names the rule and, where one was refused, the device's call. It may run on any thread that uses the device, and must not call cgr. */
typedef void (*cgr_violation_function)(void *context, const char *message);

/* How a device is opened. Zeros: no layer; on the host device a worker thread for each stream. */
typedef struct cgr_device_config {
  uint32_t size;
  int32_t host_schedule;         /* cgr_host_schedule; host device only */
  uint64_t host_seed;            /* for CGR_SCHEDULE_RANDOM */
  int32_t max_capability;        /* CUDA: use no kernel made for a newer compute capability than this (80, 90, ...); 0: any */
  int32_t reserved;
  const cgr_device_layer *layer; /* a layer that sees every call, such as cgr_validation_layer(); NULL: none */
  cgr_violation_function on_violation; /* of the layer; NULL: only the message is kept (cgr_last_message) */
  void *violation_context;
} cgr_device_config;
#define CGR_DEVICE_CONFIG_INIT { (uint32_t)sizeof(cgr_device_config), 0, 0, 0, 0, NULL, NULL, NULL }

typedef struct cgr_device_info {
  uint32_t size;
  int32_t kind;                /* cgr_device_kind */
  int32_t ordinal;             /* CUDA device number; 0 for the host */
  int32_t num_multiprocessors; /* SMs; online processors for the host */
  int32_t compute_capability;  /* 90 for compute capability 9.0; 0 for the host */
  int32_t kernel_capability;   /* the same, limited by max_capability: what kernels are chosen for */
  int32_t driver_version;      /* as cudaDriverGetVersion; 0 for the host */
  int32_t shared_memory;       /* bytes of shared memory of an SM; 0 for the host */
  uint64_t memory_total;       /* bytes */
  uint64_t memory_free;        /* bytes, now */
  char name[64];
  uint64_t memory_bandwidth;   /* bytes per second: 2 x memory clock x bus width; 0: not known, and for the host */
} cgr_device_info;
#define CGR_DEVICE_INFO_INIT { (uint32_t)sizeof(cgr_device_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0 }

/* Opens "cuda", which is cuda:0, "cuda:N" or "host"; NULL picks cuda:0 if there is a GPU with a driver, and the host otherwise.
 * `config` may be NULL. A device must outlive everything made from it: runtimes, streams, events and memory. Opening and closing
 * are refused where cgr_stream_destroy is.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_device_open(const char *name, const cgr_device_config *config, cgr_device **device);

/* Waits for the work that was enqueued, then frees the device. CGR_ERROR_STATE, and nothing is done, while a runtime, stream,
 * event or allocation made from it is still alive; the message counts them. NULL is allowed.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_device_close(cgr_device *device);

/* What the device is, and how much memory it has free now.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_device_get_info(cgr_device *device, cgr_device_info *info);

/* The validation layer: checks every call of the runtime and of this header against the rules of devices (live handles, capture,
 * matching kinds of memory, nothing left at close) before the device sees it, refuses what breaks them and reports it by name.
 * It also refuses
 * - the use of freed memory, and copies and fills beyond the end of memory that the device gave;
 * - work that `record`, a call or a backend's function enqueues through this header during a capture on a stream that is not
 *   in the capture: the graph would lack the work;
 * - cgr_stream_synchronize, cgr_stream_create, and allocating and freeing memory, on a thread that is inside `record`, a call of
 *   a step, or a backend's plan, plan_host or record (CGR_ERROR_CAPTURE). In warm-ups and eager steps the device itself takes
 *   these, so only the layer finds them before a capture fails. It refuses them at breaks of PIECEWISE graphs as well.
 *
 * Runtimes over it keep a ledger of pages and check their callers. They refuse and report
 * - two rows that write one page in a step, a row that writes over another's token, or one that fills a page below another's
 *   length in that row's own step (CGR_ERROR_INVALID_ARGUMENT);
 * - a page that goes to another request while a step that used it is in flight, and a second thread inside the runtime
 *   (CGR_ERROR_STATE);
 * - NaN or an infinity among the elements of a read-trash page, or the factors of its tokens: reported once the step
 *   that found it has completed, and refused by the next cgr_step_prepare (CGR_ERROR_STATE).
 * A kernel of the engine's that writes query_start_loc is reported by cgr_step_wait, and nothing is refused. Page tables of the
 * engine's own are not seen. The ledger costs 64 bytes per page, 4 per entry of a page table, and O(rows + tokens) per step; the
 * checks also take pinned memory for copies of the read-trash pages and of query_start_loc.
 *
 * For development. It is in a library of its own, libcgr_validation, which is linked alongside libcgr.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const cgr_device_layer *cgr_validation_layer(void);

/* ---------------------------------------------------------------------------------------------------------------- memory */

/* Memory of the device, or page-locked memory of the host that the device reads and writes at the same address. Aligned to
 * 256 bytes, content undefined. On the host device this is ordinary memory; the engine may access it
 * while no enqueued work does.
 *
 * Freeing NULL is allowed; an address that this device did not return is refused with CGR_ERROR_INVALID_ARGUMENT. Refused with
 * CGR_ERROR_STATE is memory in which a runtime of the process that is neither destroyed nor dead has
 * - its layers' views, scales, slopes or sinks, a group's page table, or device_memory or pinned_memory: destroy it first;
 * - a region of a graph that is not stale: first move or unregister the region, or release the graphs;
 * - an address that a parameter of such a graph's nodes holds, at a multiple of 8 bytes, an argument of its calls at breaks, or a
 *   view, scale or other array that its calls of record.h and attention.h name; a number that looks like one counts. What kernels
 *   find in memory or in variables of their modules is not seen, nor are parameters of hidden nodes (cgr_runtime_audit).
 * What a capture under way is going to hold is not known. Freeing waits for the work that the device's streams have been given so
 * far.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_memory_alloc(cgr_device *device, size_t bytes, void **memory);
CGR_API cgr_status cgr_memory_free(cgr_device *device, void *memory);
CGR_API cgr_status cgr_memory_alloc_pinned(cgr_device *device, size_t bytes, void **memory);
CGR_API cgr_status cgr_memory_free_pinned(cgr_device *device, void *memory);

/* --------------------------------------------------------------------------------------------------------------- streams */

/* A stream that is not ordered with CUDA's default stream.
 * Threads any · Capture no · Sync never · Alloc cold */
CGR_API cgr_status cgr_stream_create(cgr_device *device, cudaStream_t *stream);
/* Waits for the stream's work first. Refused on a thread that is inside `record`, a call of a step, or a backend's plan or
 * plan_host, whatever the stream's device (CGR_ERROR_STATE).
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_stream_destroy(cgr_device *device, cudaStream_t stream);
/* Waits until the work that the stream has been given so far has completed. Not for `record`, where a capture refuses it; in an
 * eager step only the validation layer does.
 * Threads any · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_stream_synchronize(cgr_device *device, cudaStream_t stream);

/* Events order streams: work enqueued after cgr_event_wait starts when everything before cgr_event_record has finished. In a
 * capture they fork and join branches, as CUDA's events do.
 * Threads any · Capture ok · Sync never · Alloc cold */
CGR_API cgr_status cgr_event_create(cgr_device *device, cgr_event **event);
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_event_destroy(cgr_device *device, cgr_event *event);
/* A wait for an event that was never recorded waits for nothing.
 * Threads any · Capture adds · Sync never · Alloc never */
CGR_API cgr_status cgr_event_record(cgr_device *device, cgr_event *event, cudaStream_t stream);
CGR_API cgr_status cgr_event_wait(cgr_device *device, cgr_event *event, cudaStream_t stream);

/* ------------------------------------------------------------------------------------------------------------------ work */

/* Copies, or fills with a byte, when the stream gets there: source and destination must live until then. During a capture CUDA
 * refuses pageable host memory. 0 bytes: nothing is done. Of `byte` the low 8 bits count. The host device refuses what begins
 * inside one of its allocations and ends past it; CUDA notices that at the call, or later with CGR_ERROR_DEAD, if at all.
 * Threads any · Capture adds · Sync never · Alloc never */
CGR_API cgr_status cgr_copy(cgr_device *device, void *dst, const void *src, size_t bytes, cudaStream_t stream);
CGR_API cgr_status cgr_fill(cgr_device *device, void *dst, int byte, size_t bytes, cudaStream_t stream);

/* Enqueues a function of the engine that runs on the host's processor. `args` (at most 4096 bytes) is copied now, and a captured
 * call keeps its copy. This is how an engine writes its kernels for the host device. On CUDA it becomes a host node, which
 * stalls the stream: not for a hot path. The function must not call CUDA or cgr.
 * Threads any · Capture adds · Sync never · Alloc cold */
typedef void (*cgr_host_function)(const void *args);
CGR_API cgr_status cgr_launch_host(cgr_device *device, cgr_host_function function, const void *args, size_t args_size,
                                   cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
