/* Opening, describing and closing the host device, and its table. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* _SC_PHYS_PAGES, _SC_AVPHYS_PAGES */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "devices/fork.h"
#include "devices/host/capture.h"
#include "devices/host/enqueue.h"
#include "devices/host/event.h"
#include "devices/host/graph.h"
#include "devices/host/memory.h"
#include "devices/host/pool.h"
#include "devices/host/stream.h"
#include "devices/host/waiter.h"

static int device_info(cgr_device *dev, cgr_device_info *info) {
  (void)dev;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  info->kind = CGR_DEVICE_KIND_HOST;
  info->ordinal = 0;
  info->num_multiprocessors = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  info->compute_capability = 0;
  info->kernel_capability = 0;
  info->driver_version = 0;
  info->memory_total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
  info->memory_free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
  snprintf(info->name, sizeof info->name, "host");
  return CGR__DEVICE_OK;
}

static void free_host_device(struct host_device *host) {
  while (host->streams) {
    struct host_stream *stream = host->streams;
    host->streams = stream->next;
    pthread_cond_destroy(&stream->wake);
    free(stream->deps.ids);
    free(stream);
  }
  while (host->events) {
    cgr__event *event = host->events;
    host->events = event->next;
    free(event->deps.ids);
    free(event);
  }
  while (host->waiters) {
    cgr__waiter *waiter = host->waiters;
    host->waiters = waiter->next;
    free(waiter);
  }
  cgr__host_pools_free(host);
  cgr__allocations_free(&host->allocations);
  pthread_cond_destroy(&host->done);
  pthread_mutex_destroy(&host->lock);
  free(host);
}

static int host_device_close(cgr_device *dev) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  while (host->captures)
    cgr__host_capture_drop(host, host->captures);
  for (struct host_stream *s = host->streams; s; s = s->next)
    if (s->alive)
      cgr__host_stream_retire(host, s);
  host->head.magic = 0;
  pthread_mutex_unlock(&host->lock);
  cgr__fork_unwatch(dev);
  free_host_device(host);
  return CGR__DEVICE_OK;
}

static const cgr__device_ops host_ops = {
  .mem_alloc = cgr__host_mem_alloc,
  .mem_free = cgr__host_mem_free,
  .mem_find = cgr__host_mem_find,
  .stream_create = cgr__host_stream_create,
  .stream_destroy = cgr__host_stream_destroy,
  .stream_sync = cgr__host_stream_sync,
  .stream_query = cgr__host_stream_query,
  .event_create = cgr__host_event_create,
  .event_destroy = cgr__host_event_destroy,
  .event_record = cgr__host_event_record,
  .event_wait = cgr__host_event_wait,
  .event_query = cgr__host_event_query,
  .event_sync = cgr__host_event_sync,
  .waiter_create = cgr__host_waiter_create,
  .waiter_destroy = cgr__host_waiter_destroy,
  .waiter_wait = cgr__host_waiter_wait,
  .copy = cgr__host_copy,
  .fill = cgr__host_fill,
  .launch = cgr__host_launch,
  .host_call = cgr__host_host_call,
  .preload = cgr__host_preload,
  .capture_begin = cgr__host_capture_begin,
  .capture_end = cgr__host_capture_end,
  .capture_status = cgr__host_capture_status,
  .graph_destroy = cgr__host_graph_destroy,
  .capture_nodes = cgr__host_capture_nodes,
  .graph_walk = cgr__host_graph_walk,
  .instantiate = cgr__host_instantiate,
  .exec_launch = cgr__host_exec_launch,
  .exec_destroy = cgr__host_exec_destroy,
  .info = device_info,
  .close = host_device_close,
};

/* Its timed waits are by the monotonic clock. */
static bool init_done(struct host_device *host) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes) != 0)
    return false;
  bool ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&host->done, &attributes) == 0;
  pthread_condattr_destroy(&attributes);
  return ok;
}

int cgr__host_device_open(const cgr_device_config *config, cgr_device **dev) {
  *dev = NULL;
  struct host_device *host = calloc(1, sizeof *host);
  if (!host)
    return CGR__DEVICE_NO_MEMORY;
  if (pthread_mutex_init(&host->lock, NULL) != 0)
    goto fail_host;
  if (!init_done(host))
    goto fail_lock;
  if (!cgr__allocations_init(&host->allocations))
    goto fail_done;
  if (!cgr__host_pools_init(host))
    goto fail_pools;
  host->head.ops = &host_ops;
  host->head.magic = CGR__DEVICE_MAGIC;
  host->head.allocations = &host->allocations;
  host->head.kind = CGR_DEVICE_KIND_HOST;
  host->schedule = config->host_schedule;
  /* The generator must not start at 0, and neighbouring seeds should diverge at once. */
  host->random = (config->host_seed + 1) * 0x9E3779B97F4A7C15u | 1u;
  if (!cgr__fork_watch(&host->head))
    goto fail_pools;
  *dev = &host->head;
  return CGR__DEVICE_OK;

fail_pools:
  cgr__host_pools_free(host);
  cgr__allocations_free(&host->allocations);
fail_done:
  pthread_cond_destroy(&host->done);
fail_lock:
  pthread_mutex_destroy(&host->lock);
fail_host:
  free(host);
  return CGR__DEVICE_NO_MEMORY;
}
