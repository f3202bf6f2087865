#include "devices/shims/trace.h"

#include <string.h>

struct trace {
  struct cgr__shim shim;
  uint64_t counts[CGR__OP_COUNT];
  uint64_t total, failed;
  struct cgr__trace_entry ring[CGR__TRACE_RING];
};

static struct trace *trace_of(cgr_device *dev) { return (struct trace *)(void *)dev; }

/* Calls are entered in the order in which they return: a thread's own order, which is what tests compare. */
static int after_call(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t word, int error) {
  struct trace *trace = trace_of(&shim->head);
  (void)word;
  pthread_mutex_lock(&trace->shim.lock);
  struct cgr__trace_entry *entry = &trace->ring[trace->total++ % CGR__TRACE_RING];
  entry->call = *call;
  entry->error = error;
  trace->counts[call->op]++;
  trace->failed += error != CGR__DEVICE_OK && error != CGR__DEVICE_NOT_READY;
  pthread_mutex_unlock(&trace->shim.lock);
  return error;
}

static const cgr__shim_hooks hooks = { .before = NULL, .after = after_call };

int cgr__trace_open(cgr_device *inner, cgr_device **dev) {
  struct cgr__shim *shim;
  int error = cgr__shim_open(sizeof(struct trace), inner, &hooks, &shim);
  *dev = error == CGR__DEVICE_OK ? &shim->head : NULL;
  return error;
}

/* Sum of the counts of the listed operations. */
static uint64_t sum_counts(cgr_device *dev, const enum cgr__shim_op *ops, size_t num_ops) {
  struct trace *trace = trace_of(dev);
  uint64_t count = 0;
  pthread_mutex_lock(&trace->shim.lock);
  for (size_t i = 0; i < num_ops; i++)
    count += trace->counts[ops[i]];
  pthread_mutex_unlock(&trace->shim.lock);
  return count;
}

uint64_t cgr__trace_count(cgr_device *dev, enum cgr__shim_op op) { return sum_counts(dev, &op, 1); }

uint64_t cgr__trace_total(cgr_device *dev) {
  struct trace *trace = trace_of(dev);
  pthread_mutex_lock(&trace->shim.lock);
  uint64_t total = trace->total;
  pthread_mutex_unlock(&trace->shim.lock);
  return total;
}

uint64_t cgr__trace_failed(cgr_device *dev) {
  struct trace *trace = trace_of(dev);
  pthread_mutex_lock(&trace->shim.lock);
  uint64_t failed = trace->failed;
  pthread_mutex_unlock(&trace->shim.lock);
  return failed;
}

uint64_t cgr__trace_syncs(cgr_device *dev) {
  static const enum cgr__shim_op ops[] = { CGR__OP_STREAM_SYNC, CGR__OP_EVENT_SYNC, CGR__OP_STREAM_DESTROY,
                                           CGR__OP_EXEC_DESTROY };
  return sum_counts(dev, ops, sizeof ops / sizeof *ops);
}

uint64_t cgr__trace_allocs(cgr_device *dev) {
  static const enum cgr__shim_op ops[] = { CGR__OP_MEM_ALLOC,      CGR__OP_MEM_FREE,       CGR__OP_STREAM_CREATE,
                                           CGR__OP_STREAM_DESTROY, CGR__OP_EVENT_CREATE,   CGR__OP_EVENT_DESTROY,
                                           CGR__OP_WAITER_CREATE,  CGR__OP_WAITER_DESTROY, CGR__OP_CAPTURE_BEGIN,
                                           CGR__OP_CAPTURE_END,    CGR__OP_INSTANTIATE,    CGR__OP_GRAPH_DESTROY,
                                           CGR__OP_EXEC_DESTROY };
  return sum_counts(dev, ops, sizeof ops / sizeof *ops);
}

bool cgr__trace_get(cgr_device *dev, uint64_t index, struct cgr__trace_entry *entry) {
  struct trace *trace = trace_of(dev);
  pthread_mutex_lock(&trace->shim.lock);
  bool there = index < trace->total && index + CGR__TRACE_RING >= trace->total;
  if (there)
    *entry = trace->ring[index % CGR__TRACE_RING];
  pthread_mutex_unlock(&trace->shim.lock);
  return there;
}

void cgr__trace_reset(cgr_device *dev) {
  struct trace *trace = trace_of(dev);
  pthread_mutex_lock(&trace->shim.lock);
  memset(trace->counts, 0, sizeof trace->counts);
  trace->total = 0;
  trace->failed = 0;
  pthread_mutex_unlock(&trace->shim.lock);
}
