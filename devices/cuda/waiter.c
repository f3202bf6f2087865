#define _POSIX_C_SOURCE 200809L
#include "devices/cuda/waiter.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "devices/cuda/scope.h"
#include "devices/cuda/stream.h"

#define ROUND_NS 8000000u /* between two looks at the word while the GPU waits for it, too */
#define SHORTEST_POLL_NS 20000u
#define LONGEST_POLL_NS 100000u

struct cgr__waiter {
  cgr__waiter *next; /* in cuda_device.waiters */
  uint64_t *word;
  cudaStream_t stream; /* NULL: the GPU cannot wait for a word */
  pthread_mutex_t lock;
  pthread_cond_t woken;
  bool armed; /* the stream waits for `target`; guarded by the lock */
  uint64_t target;
};

/* --------------------------------------------------------------------------------------------------------- making one */

static bool init_locks(cgr__waiter *waiter) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes) != 0)
    return false;
  bool ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&waiter->woken, &attributes) == 0;
  pthread_condattr_destroy(&attributes);
  if (ok && pthread_mutex_init(&waiter->lock, NULL) != 0) {
    pthread_cond_destroy(&waiter->woken);
    ok = false;
  }
  return ok;
}

static void waiter_free(cgr__waiter *waiter) {
  pthread_mutex_destroy(&waiter->lock);
  pthread_cond_destroy(&waiter->woken);
  free(waiter);
}

static cgr__waiter *waiter_new(uint64_t *word) {
  cgr__waiter *waiter = calloc(1, sizeof *waiter);
  if (!waiter)
    return NULL;
  waiter->word = word;
  if (init_locks(waiter))
    return waiter;
  free(waiter);
  return NULL;
}

int cgr__cuda_waiter_create(cgr_device *dev, uint64_t *word, cgr__waiter **handle) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  *handle = NULL;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  cgr__waiter *waiter = waiter_new(word);
  if (!waiter)
    return cgr__cuda_error(cuda, CUDA_ERROR_OUT_OF_MEMORY);
  int error = cuda->streams_wait ? cgr__cuda_stream_create(dev, CGR__STREAM_BETWEEN, &waiter->stream) : CGR__DEVICE_OK;
  if (error != CGR__DEVICE_OK) {
    waiter_free(waiter);
    return error;
  }
  pthread_mutex_lock(&cuda->lock);
  waiter->next = cuda->waiters;
  cuda->waiters = waiter;
  pthread_mutex_unlock(&cuda->lock);
  *handle = waiter;
  return CGR__DEVICE_OK;
}

/* ----------------------------------------------------------------------------------------------------------- ending one */

static bool is_armed(cgr__waiter *waiter) {
  pthread_mutex_lock(&waiter->lock);
  bool armed = waiter->armed;
  pthread_mutex_unlock(&waiter->lock);
  return armed;
}

static void free_waiter(struct cuda_device *cuda, cgr__waiter *waiter) {
  cgr__waiter **link = &cuda->waiters;
  pthread_mutex_lock(&cuda->lock);
  while (*link != waiter)
    link = &(*link)->next;
  *link = waiter->next;
  pthread_mutex_unlock(&cuda->lock);
  waiter_free(waiter);
}

void cgr__cuda_waiters_free(struct cuda_device *cuda) {
  while (cuda->waiters)
    free_waiter(cuda, cuda->waiters);
}

/* What is still armed is a wait for a number that no step has reached. A lost device calls its function at any time, or never, so
 * the waiter is freed when the device closes. */
int cgr__cuda_waiter_destroy(cgr_device *dev, cgr__waiter *waiter) {
  __atomic_store_n(waiter->word, INT64_MAX, __ATOMIC_RELEASE);
  int error = waiter->stream ? cgr__cuda_stream_destroy(dev, waiter->stream) : CGR__DEVICE_OK;
  if (!cgr__device_did_nothing(error) && !is_armed(waiter))
    free_waiter(cgr__cuda_of(dev), waiter);
  return error;
}

/* -------------------------------------------------------------------------------------------------------------- waiting */

static bool waiter_has_reached(const cgr__waiter *waiter, uint64_t value) {
  return __atomic_load_n(waiter->word, __ATOMIC_ACQUIRE) >= value;
}

/* On a thread of the driver's. */
static void CUDA_CB wake_waiter(void *data) {
  cgr__waiter *waiter = data;
  pthread_mutex_lock(&waiter->lock);
  waiter->armed = false;
  pthread_cond_signal(&waiter->woken);
  pthread_mutex_unlock(&waiter->lock);
}

/* A wait whose function cannot be enqueued ends unnoticed. */
static CUresult enqueue_wait(cgr__waiter *waiter) {
  CUresult raw =
      cgr__cu.StreamWaitValue64(waiter->stream, (CUdeviceptr)(uintptr_t)waiter->word, waiter->target, CU_STREAM_WAIT_VALUE_GEQ);
  return raw == CUDA_SUCCESS ? cgr__cu.LaunchHostFunc(waiter->stream, wake_waiter, waiter) : raw;
}

/* Makes the stream wait, unless it does already. */
static int arm_waiter(struct cuda_device *cuda, cgr__waiter *waiter, uint64_t value) {
  struct cgr__cuda_scope scope;
  if (is_armed(waiter))
    return CGR__DEVICE_OK;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  waiter->target = value;
  waiter->armed = true; /* before the function can run */
  CUresult raw = enqueue_wait(waiter);
  if (raw != CUDA_SUCCESS)
    waiter->armed = false;
  return cgr__cuda_leave(&scope, raw);
}

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void sleep_until_woken(cgr__waiter *waiter, uint64_t value, uint64_t end) {
  const struct timespec time = cgr__timespec_of(end);
  int error = 0;
  pthread_mutex_lock(&waiter->lock);
  while (waiter->armed && error == 0 && !waiter_has_reached(waiter, value))
    error = pthread_cond_timedwait(&waiter->woken, &waiter->lock, &time);
  pthread_mutex_unlock(&waiter->lock);
}

static void poll_later(uint64_t waited, uint64_t left) {
  uint64_t pause = waited / 8 < SHORTEST_POLL_NS ? SHORTEST_POLL_NS : least_of(waited / 8, LONGEST_POLL_NS);
  const struct timespec time = cgr__timespec_of(least_of(pause, left));
  nanosleep(&time, NULL);
}

int cgr__cuda_waiter_wait(cgr_device *dev, cgr__waiter *waiter, uint64_t value, uint64_t ns) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  const uint64_t begin = cgr__now_ns(), end = begin + ns;
  for (uint64_t now = begin; !waiter_has_reached(waiter, value); now = cgr__now_ns()) {
    if (now >= end)
      return CGR__DEVICE_NOT_READY;
    int error = waiter->stream ? arm_waiter(cuda, waiter, value) : CGR__DEVICE_OK;
    if (error == CGR__DEVICE_DEAD)
      return error;
    if (is_armed(waiter) && waiter->target <= value)
      sleep_until_woken(waiter, value, least_of(end, now + ROUND_NS));
    else
      poll_later(now - begin, end - now);
  }
  return CGR__DEVICE_OK;
}
