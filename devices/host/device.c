/* Opening, describing and closing the host device, and its table. */
#define _GNU_SOURCE /* _SC_PHYS_PAGES, _SC_AVPHYS_PAGES */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "devices/host/host.h"

int cgr__host_fail(struct host_device *host, int error, int raw) {
  /* Threads may fail at once, and some do so without the lock; whose code stays is arbitrary, but it is no data race. */
  __atomic_store_n(&host->head.last_raw, raw, __ATOMIC_RELAXED);
  return error;
}

int cgr__host_info(cgr_device *dev, cgr_device_info *info) {
  (void)dev;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  info->kind = CGR_DEVICE_HOST;
  info->ordinal = 0;
  info->num_multiprocessors = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  info->compute_capability = 0;
  info->driver_version = 0;
  info->memory_total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
  info->memory_free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
  snprintf(info->name, sizeof info->name, "host");
  return CGR__DEVICE_OK;
}

static void free_all(struct host_device *host) {
  while (host->streams != NULL) {
    struct host_stream *stream = host->streams;
    host->streams = stream->next;
    pthread_cond_destroy(&stream->wake);
    free(stream->deps.ids);
    free(stream);
  }
  while (host->events != NULL) {
    cgr__event *event = host->events;
    host->events = event->next;
    free(event->deps.ids);
    free(event);
  }
  cgr__host_pools_free(host);
  pthread_cond_destroy(&host->done);
  pthread_mutex_destroy(&host->lock);
  free(host);
}

static int device_close(cgr_device *dev) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  while (host->captures != NULL)
    cgr__host_capture_drop(host, host->captures);
  for (struct host_stream *s = host->streams; s != NULL; s = s->next) {
    if (s->alive)
      cgr__host_stream_retire(host, s);
  }
  host->head.magic = 0;
  pthread_mutex_unlock(&host->lock);
  free_all(host);
  return CGR__DEVICE_OK;
}

static const cgr__device_ops host_ops = {
  .mem_alloc = cgr__host_mem_alloc,
  .mem_free = cgr__host_mem_free,
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
  .copy = cgr__host_copy,
  .fill = cgr__host_fill,
  .launch = cgr__host_launch,
  .host_call = cgr__host_host_call,
  .preload = cgr__host_preload,
  .capture_begin = cgr__host_capture_begin,
  .capture_end = cgr__host_capture_end,
  .capture_status = cgr__host_capture_status,
  .graph_destroy = cgr__host_graph_destroy,
  .instantiate = cgr__host_instantiate,
  .exec_launch = cgr__host_exec_launch,
  .exec_destroy = cgr__host_exec_destroy,
  .info = cgr__host_info,
  .close = device_close,
};

int cgr__host_device_open(const cgr_device_config *config, cgr_device **dev) {
  *dev = NULL;
  uint32_t schedule = config != NULL ? config->host_schedule : (uint32_t)CGR_HOST_ASYNC;
  if (schedule > CGR_HOST_RANDOM)
    return CGR__DEVICE_INVALID;
  struct host_device *host = calloc(1, sizeof *host);
  if (host == NULL)
    return CGR__DEVICE_NO_MEMORY;
  if (pthread_mutex_init(&host->lock, NULL) != 0)
    goto fail_host;
  if (pthread_cond_init(&host->done, NULL) != 0)
    goto fail_lock;
  if (cgr__host_pools_init(host) != CGR__DEVICE_OK)
    goto fail_pools;
  host->head.ops = &host_ops;
  host->head.magic = CGR__DEVICE_MAGIC;
  host->head.kind = CGR_DEVICE_HOST;
  host->schedule = schedule;
  /* The generator must not start at 0, and neighbouring seeds should part at once. */
  uint64_t seed = config != NULL ? config->host_seed : 0;
  host->random = (seed + 1) * 0x9E3779B97F4A7C15u | 1u;
  *dev = &host->head;
  return CGR__DEVICE_OK;

fail_pools:
  cgr__host_pools_free(host);
  pthread_cond_destroy(&host->done);
fail_lock:
  pthread_mutex_destroy(&host->lock);
fail_host:
  free(host);
  return CGR__DEVICE_NO_MEMORY;
}
