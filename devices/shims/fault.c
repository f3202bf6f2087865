#include "devices/shims/fault.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct fault {
  struct cgr__shim shim;
  cgr__fault_plan plan;
  uint64_t calls, fired;
  bool dead;
  int dead_raw;
};

/* Calls between `before` and `after` that are to fail after taking effect. A thread is in one call at a time, so all that must
 * be kept is one entry per nested fault shim, for each thread its own. */
static _Thread_local struct {
  struct fault *fault;
  int error, raw;
} pending[4];

static struct fault *fault_of(cgr_device *dev) { return (struct fault *)(void *)dev; }

static bool destroys(enum cgr__shim_op op) {
  return op == CGR__OP_MEM_FREE || op == CGR__OP_STREAM_DESTROY || op == CGR__OP_EVENT_DESTROY || op == CGR__OP_GRAPH_DESTROY ||
         op == CGR__OP_EXEC_DESTROY;
}

/* Counts the call and tells whether it is to fail. */
static bool strikes(struct fault *fault, enum cgr__shim_op op, int *error, int *raw) {
  if (fault->dead) {
    *error = CGR__DEVICE_DEAD;
    *raw = fault->dead_raw;
    return !destroys(op);
  }
  const cgr__fault_plan *plan = &fault->plan;
  if (plan->nth == 0 || (plan->op != CGR__FAULT_ANY_OP && plan->op != (int)op))
    return false;
  fault->calls++;
  if (plan->mode == CGR__FAULT_ONCE ? fault->calls != plan->nth : fault->calls < plan->nth)
    return false;
  fault->fired++;
  *error = plan->error;
  *raw = plan->raw;
  fault->dead = plan->error == CGR__DEVICE_DEAD;
  fault->dead_raw = plan->raw;
  return true;
}

static int report(struct fault *fault, int error, int raw) {
  __atomic_store_n(&fault->shim.head.last_raw, raw, __ATOMIC_RELAXED);
  return error;
}

static int before(struct cgr__shim *shim, const struct cgr__shim_call *call) {
  struct fault *fault = fault_of(&shim->head);
  int error = CGR__DEVICE_OK, raw = 0;
  if (call->op == CGR__OP_CLOSE)
    return CGR__DEVICE_OK;
  pthread_mutex_lock(&fault->shim.lock);
  bool effect = fault->plan.take_effect != 0 && !fault->dead;
  bool strike = strikes(fault, call->op, &error, &raw);
  pthread_mutex_unlock(&fault->shim.lock);
  if (!strike)
    return CGR__DEVICE_OK;
  if (!effect && !destroys(call->op) && call->op != CGR__OP_CAPTURE_END)
    return report(fault, error, raw);
  for (size_t i = 0; i < sizeof pending / sizeof *pending; i++) {
    if (pending[i].fault != NULL)
      continue;
    pending[i].fault = fault;
    pending[i].error = error;
    pending[i].raw = raw;
    return CGR__DEVICE_OK;
  }
  return report(fault, error, raw); /* nested deeper than anybody does */
}

static int after(struct cgr__shim *shim, const struct cgr__shim_call *call, int error) {
  struct fault *fault = fault_of(&shim->head);
  (void)call;
  for (size_t i = 0; i < sizeof pending / sizeof *pending; i++) {
    if (pending[i].fault != fault)
      continue;
    pending[i].fault = NULL;
    return report(fault, pending[i].error, pending[i].raw);
  }
  return error;
}

static const cgr__shim_hooks hooks = { .before = before, .after = after };

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
  fault->plan = plan != NULL ? *plan : none;
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
