#include "devices/shims/fault.h"

#include <sched.h>
#include <stdlib.h>

/* A stream that was made here, or on which a capture was begun here. */
struct known_stream {
  struct known_stream *next;
  cudaStream_t stream;
  bool made, capturing;
  pthread_t owner; /* of the capture */
};

struct fault {
  struct cgr__shim shim;
  cgr__fault_plan plan;
  uint64_t calls, fired;
  bool dead;
  int dead_raw;
  struct known_stream *streams;
};

/* What a call is answered with. */
struct verdict {
  int error, raw;
  bool forward; /* the inner device is called all the same */
};

static struct fault *fault_of(cgr_device *dev) { return (struct fault *)(void *)dev; }

static bool destroys_object(enum cgr__shim_op op) {
  return op == CGR__OP_MEM_FREE || op == CGR__OP_STREAM_DESTROY || op == CGR__OP_EVENT_DESTROY || op == CGR__OP_WAITER_DESTROY ||
         op == CGR__OP_GRAPH_DESTROY || op == CGR__OP_EXEC_DESTROY;
}

/* ----------------------------------------------------------------------------------------------- streams, and the end */

static struct known_stream *find_stream(const struct fault *fault, cudaStream_t stream) {
  for (struct known_stream *s = fault->streams; s; s = s->next)
    if (s->stream == stream)
      return s;
  return NULL;
}

/* NULL without memory: the stream is then not finished when the device dies. */
static struct known_stream *remember_stream(struct fault *fault, cudaStream_t stream) {
  struct known_stream *known = find_stream(fault, stream);
  if (known)
    return known;
  known = calloc(1, sizeof *known);
  if (!known)
    return NULL;
  known->stream = stream;
  known->next = fault->streams;
  fault->streams = known;
  return known;
}

static void forget_stream(struct fault *fault, cudaStream_t stream) {
  for (struct known_stream **link = &fault->streams; *link; link = &(*link)->next) {
    struct known_stream *known = *link;
    if (known->stream != stream)
      continue;
    *link = known->next;
    free(known);
    return;
  }
}

/* What changes when a call has taken effect in the inner device. */
static void note_effect(struct fault *fault, const struct cgr__shim_call *call) {
  struct known_stream *known = NULL;
  switch (call->op) {
  case CGR__OP_STREAM_CREATE:
    known = remember_stream(fault, call->stream);
    if (known)
      known->made = true;
    return;
  case CGR__OP_STREAM_DESTROY:
    forget_stream(fault, call->stream);
    return;
  case CGR__OP_CAPTURE_BEGIN:
    known = remember_stream(fault, call->stream);
    if (!known)
      return;
    known->capturing = true;
    known->owner = pthread_self();
    return;
  default:
    return;
  }
}

/* Lets what is pending run now, so that nothing runs later. With the lock held. */
static void finish_all(struct fault *fault) {
  cgr_device *in = fault->shim.inner;
  for (struct known_stream *s = fault->streams; s; s = s->next) {
    cgr__graph *graph = NULL;
    if (!s->capturing || !pthread_equal(s->owner, pthread_self()))
      continue;
    if (in->ops->capture_end(in, s->stream, &graph) == CGR__DEVICE_OK)
      in->ops->graph_destroy(in, graph);
    s->capturing = false;
  }
  for (const struct known_stream *s = fault->streams; s; s = s->next)
    while (s->made && !s->capturing && in->ops->stream_query(in, s->stream) == CGR__DEVICE_NOT_READY)
      sched_yield(); /* a wait would be refused inside `record` */
}

/* ---------------------------------------------------------------------------------------------------------- the fault */

/* Counts the call and tells whether the plan fires. */
static bool plan_fires(struct fault *fault, enum cgr__shim_op op) {
  const cgr__fault_plan *plan = &fault->plan;
  if (plan->nth == 0 || (plan->op != CGR__FAULT_ANY_OP && plan->op != (int)op))
    return false;
  if (destroys_object(op) && cgr__device_did_nothing(plan->error))
    return false;
  fault->calls++;
  if (plan->mode == CGR__FAULT_ONCE ? fault->calls != plan->nth : fault->calls < plan->nth)
    return false;
  fault->fired++;
  return true;
}

static struct verdict judge_dead(const struct fault *fault, const struct cgr__shim_call *call) {
  struct verdict verdict = { .error = CGR__DEVICE_DEAD, .raw = fault->dead_raw };
  const struct known_stream *known = find_stream(fault, call->stream);
  if (destroys_object(call->op))
    verdict.error = CGR__DEVICE_OK;
  if (call->op == CGR__OP_CAPTURE_END)
    verdict.forward = known && known->capturing; /* another thread's: the shim has ended its own */
  return verdict;
}

static struct verdict judge_call(struct fault *fault, const struct cgr__shim_call *call) {
  struct verdict verdict = { .error = CGR__DEVICE_OK };
  if (fault->dead)
    return judge_dead(fault, call);
  if (!plan_fires(fault, call->op))
    return verdict;
  const cgr__fault_plan *plan = &fault->plan;
  verdict.error = plan->error;
  verdict.raw = plan->raw;
  fault->dead = plan->error == CGR__DEVICE_DEAD;
  bool begins = call->op == CGR__OP_CAPTURE_BEGIN && fault->dead; /* a stream that captures could not be finished */
  bool takes_effect = plan->take_effect != 0 && !cgr__device_did_nothing(plan->error) && !begins;
  verdict.forward = takes_effect || destroys_object(call->op) || call->op == CGR__OP_CAPTURE_END;
  fault->dead_raw = plan->raw;
  if (fault->dead && !verdict.forward)
    finish_all(fault);
  return verdict;
}

static int report_fault(struct fault *fault, int error, int raw) {
  __atomic_store_n(&fault->shim.head.last_raw, raw, __ATOMIC_RELAXED);
  return error;
}

static int before_call(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t *word) {
  struct fault *fault = fault_of(&shim->head);
  if (call->op == CGR__OP_CLOSE)
    return CGR__DEVICE_OK;
  pthread_mutex_lock(&shim->lock);
  struct verdict verdict = judge_call(fault, call);
  pthread_mutex_unlock(&shim->lock);
  if (verdict.error == CGR__DEVICE_OK)
    return CGR__DEVICE_OK;
  if (!verdict.forward)
    return report_fault(fault, verdict.error, verdict.raw);
  *word = (uint64_t)(uint32_t)verdict.raw << 32 | (uint32_t)verdict.error;
  return CGR__DEVICE_OK;
}

/* A creation that is reported as failed is undone by the forwarding: it has changed nothing. */
static int after_call(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t word, int error) {
  struct fault *fault = fault_of(&shim->head);
  bool effective = call->op == CGR__OP_STREAM_DESTROY ? !cgr__device_did_nothing(error) : error == CGR__DEVICE_OK && word == 0;
  if (call->op == CGR__OP_CLOSE)
    return error;
  pthread_mutex_lock(&shim->lock);
  struct known_stream *known = call->op == CGR__OP_CAPTURE_END ? find_stream(fault, call->stream) : NULL;
  if (known)
    known->capturing = false;
  if (effective)
    note_effect(fault, call);
  if (fault->dead && word != 0)
    finish_all(fault);
  pthread_mutex_unlock(&shim->lock);
  return word != 0 ? report_fault(fault, (int)(uint32_t)word, (int)(uint32_t)(word >> 32)) : error;
}

static void destroy_fault(struct cgr__shim *shim) {
  struct fault *fault = fault_of(&shim->head);
  while (fault->streams)
    forget_stream(fault, fault->streams->stream);
}

static const cgr__shim_hooks hooks = { .before = before_call, .after = after_call, .destroy = destroy_fault };

int cgr__fault_open(cgr_device *inner, cgr_device **dev) {
  struct cgr__shim *shim;
  int error = cgr__shim_open(sizeof(struct fault), inner, &hooks, &shim);
  *dev = error == CGR__DEVICE_OK ? &shim->head : NULL;
  return error;
}

void cgr__fault_set(cgr_device *dev, const cgr__fault_plan *plan) {
  static const cgr__fault_plan none;
  struct fault *fault = fault_of(dev);
  pthread_mutex_lock(&fault->shim.lock);
  fault->plan = plan ? *plan : none;
  fault->calls = 0;
  fault->fired = 0;
  fault->dead = false;
  pthread_mutex_unlock(&fault->shim.lock);
}

uint64_t cgr__fault_fired(cgr_device *dev) {
  struct fault *fault = fault_of(dev);
  pthread_mutex_lock(&fault->shim.lock);
  uint64_t fired = fault->fired;
  pthread_mutex_unlock(&fault->shim.lock);
  return fired;
}

uint64_t cgr__fault_calls(cgr_device *dev) {
  struct fault *fault = fault_of(dev);
  pthread_mutex_lock(&fault->shim.lock);
  uint64_t calls = fault->calls;
  pthread_mutex_unlock(&fault->shim.lock);
  return calls;
}
