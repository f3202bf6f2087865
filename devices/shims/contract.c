/* What is in flight is told by vector clocks: every stream counts its graph launches and knows, through events, how far the
 * others had come; a wait of the host raises what the host has seen. */
#include "devices/shims/contract.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STREAMS 64 /* with a clock; launches on further streams are not followed */

enum kind { MEMORY, STREAM, EVENT, GRAPH, EXEC };

static const char *const kind_names[] = { "memory", "stream", "event", "graph", "exec" };

struct clock {
  uint64_t of[MAX_STREAMS];
};

struct object {
  struct object *next;
  enum kind kind;
  const void *handle;
  bool alive, foreign;
  enum cgr__memory_kind memory_kind;
  int slot;            /* STREAM: index in clocks, or -1. EXEC: of the stream of its last launch, or -1 */
  uint64_t number;     /* EXEC: of its last launch */
  uint64_t capture;    /* STREAM: that it is in; EVENT: that it was last recorded in; 0: none */
  bool origin;         /* STREAM: the capture began here */
  pthread_t owner;     /* STREAM, origin: by this thread */
  struct clock *clock; /* STREAM, EVENT */
};

struct contract {
  struct cgr__shim shim;
  struct cgr__contract_report *report;
  struct object *objects;
  struct clock seen; /* by the host */
  int num_slots;
  uint64_t num_captures;
};

static struct contract *contract_of(struct cgr__shim *shim) { return (struct contract *)(void *)shim; }

/* ----------------------------------------------------------------------------------------------------------- objects */

static struct object *find(struct contract *contract, enum kind kind, const void *handle) {
  for (struct object *o = contract->objects; o != NULL; o = o->next) {
    if (o->kind == kind && o->handle == handle)
      return o;
  }
  return NULL;
}

/* Handles come back after destruction: the same entry then lives again. NULL without memory: the object goes unchecked. */
static struct object *born(struct contract *contract, enum kind kind, const void *handle) {
  struct object *object = find(contract, kind, handle);
  if (object == NULL) {
    object = calloc(1, sizeof *object);
    if (object == NULL)
      return NULL;
    object->kind = kind;
    object->handle = handle;
    object->slot = -1;
    if (kind == STREAM || kind == EVENT)
      object->clock = calloc(1, sizeof *object->clock);
    if (kind == STREAM && object->clock != NULL && contract->num_slots < MAX_STREAMS)
      object->slot = contract->num_slots++;
    object->next = contract->objects;
    contract->objects = object;
  }
  object->alive = true;
  object->foreign = false;
  object->capture = 0;
  if (kind == EXEC)
    object->slot = -1;
  if (kind == EVENT && object->clock != NULL)
    memset(object->clock, 0, sizeof *object->clock);
  return object;
}

static void raise_clock(struct clock *to, const struct clock *from) {
  if (to == NULL || from == NULL)
    return;
  for (int i = 0; i < MAX_STREAMS; i++) {
    if (from->of[i] > to->of[i])
      to->of[i] = from->of[i];
  }
}

static bool is_in_flight(const struct contract *contract, const struct object *exec) {
  return exec->slot >= 0 && exec->number > contract->seen.of[exec->slot];
}

/* ---------------------------------------------------------------------------------------------------------- refusals */

static int refuse(struct contract *contract, const struct cgr__shim_call *call, int error, int raw, const char *why) {
  struct cgr__contract_report *report = contract->report;
  if (report->violations++ == 0)
    snprintf(report->first, sizeof report->first, "%s: %s", cgr__shim_op_name(call->op), why);
  __atomic_store_n(&contract->shim.head.last_raw, raw, __ATOMIC_RELAXED);
  return error;
}

/* The object behind a handle, which must be alive. */
static int need(struct contract *contract, const struct cgr__shim_call *call, enum kind kind, const void *handle,
                struct object **object) {
  char why[64];
  *object = find(contract, kind, handle);
  if (*object != NULL && (*object)->alive)
    return CGR__DEVICE_OK;
  if (*object == NULL && kind == STREAM && contract->shim.head.kind == CGR_DEVICE_CUDA) {
    *object = born(contract, STREAM, handle);
    if (*object != NULL)
      (*object)->foreign = true;
    return *object != NULL ? CGR__DEVICE_OK : CGR__DEVICE_NO_MEMORY;
  }
  snprintf(why, sizeof why, "the %s is %s", kind_names[kind], *object != NULL ? "destroyed" : "not of this device");
  return refuse(contract, call, CGR__DEVICE_INVALID, 400, why);
}

static bool thread_captures(const struct contract *contract) {
  for (const struct object *o = contract->objects; o != NULL; o = o->next) {
    if (o->kind == STREAM && o->alive && o->capture != 0 && o->origin && pthread_equal(o->owner, pthread_self()))
      return true;
  }
  return false;
}

static int check_stream(struct contract *contract, const struct cgr__shim_call *call) {
  struct object *stream;
  int error = need(contract, call, STREAM, (const void *)call->stream, &stream);
  if (error != CGR__DEVICE_OK)
    return error;
  bool capturing = stream->capture != 0;
  switch (call->op) {
  case CGR__OP_STREAM_SYNC:
  case CGR__OP_STREAM_QUERY:
  case CGR__OP_STREAM_DESTROY:
    if (!capturing)
      return CGR__DEVICE_OK;
    return refuse(contract, call, CGR__DEVICE_CAPTURE_ILLEGAL, 900, "the stream captures");
  case CGR__OP_CAPTURE_BEGIN:
    if (!capturing)
      return CGR__DEVICE_OK;
    return refuse(contract, call, CGR__DEVICE_CAPTURE_ILLEGAL, 401, "the stream captures already");
  case CGR__OP_CAPTURE_END:
    if (!capturing)
      return refuse(contract, call, CGR__DEVICE_CAPTURE_INVALID, 401, "the stream does not capture");
    if (!stream->origin)
      return refuse(contract, call, CGR__DEVICE_CAPTURE_INVALID, 903, "the capture began elsewhere");
    if (pthread_equal(stream->owner, pthread_self()))
      return CGR__DEVICE_OK;
    return refuse(contract, call, CGR__DEVICE_CAPTURE_INVALID, 908, "the capture was begun by another thread");
  default:
    return CGR__DEVICE_OK;
  }
}

static int check_event(struct contract *contract, const struct cgr__shim_call *call) {
  struct object *event;
  int error = need(contract, call, EVENT, call->object, &event);
  bool host_side = call->op == CGR__OP_EVENT_QUERY || call->op == CGR__OP_EVENT_SYNC;
  if (error != CGR__DEVICE_OK || !host_side || event->capture == 0)
    return error;
  return refuse(contract, call, CGR__DEVICE_CAPTURE_ILLEGAL, 907, "the event was recorded in a capture");
}

static int check_memory_free(struct contract *contract, const struct cgr__shim_call *call) {
  struct object *memory;
  if (call->object == NULL)
    return CGR__DEVICE_OK;
  int error = need(contract, call, MEMORY, call->object, &memory);
  if (error != CGR__DEVICE_OK || memory->memory_kind == call->kind)
    return error;
  return refuse(contract, call, CGR__DEVICE_INVALID, 1, "the memory is of the other kind");
}

static int check_exec_destroy(struct contract *contract, const struct cgr__shim_call *call) {
  struct object *exec;
  int error = need(contract, call, EXEC, call->object, &exec);
  if (error != CGR__DEVICE_OK || !is_in_flight(contract, exec))
    return error;
  return refuse(contract, call, CGR__DEVICE_INVALID, 1, "a launch of the exec has not been waited for");
}

static bool takes_stream(enum cgr__shim_op op) {
  return (op >= CGR__OP_STREAM_DESTROY && op <= CGR__OP_STREAM_QUERY) || op == CGR__OP_EVENT_RECORD || op == CGR__OP_EVENT_WAIT ||
         (op >= CGR__OP_COPY && op <= CGR__OP_HOST_CALL) || (op >= CGR__OP_CAPTURE_BEGIN && op <= CGR__OP_CAPTURE_STATUS) ||
         op == CGR__OP_EXEC_LAUNCH;
}

static int check(struct contract *contract, const struct cgr__shim_call *call) {
  struct object *object;
  int error = CGR__DEVICE_OK;
  bool unsafe = call->op == CGR__OP_MEM_ALLOC || call->op == CGR__OP_MEM_FREE || call->op == CGR__OP_INSTANTIATE;
  if (unsafe && thread_captures(contract)) {
    return refuse(contract, call, CGR__DEVICE_CAPTURE_ILLEGAL, 900, "the calling thread captures");
  }
  switch (call->op) {
  case CGR__OP_STREAM_CREATE:
  case CGR__OP_CLOSE:
    return CGR__DEVICE_OK;
  case CGR__OP_MEM_FREE:
    return check_memory_free(contract, call);
  case CGR__OP_EXEC_DESTROY:
    return check_exec_destroy(contract, call);
  case CGR__OP_GRAPH_DESTROY:
    return need(contract, call, GRAPH, call->object, &object);
  case CGR__OP_INSTANTIATE:
    return need(contract, call, GRAPH, call->input, &object);
  case CGR__OP_EXEC_LAUNCH:
    error = need(contract, call, EXEC, call->object, &object);
    break;
  case CGR__OP_EVENT_DESTROY:
  case CGR__OP_EVENT_QUERY:
  case CGR__OP_EVENT_SYNC:
  case CGR__OP_EVENT_RECORD:
  case CGR__OP_EVENT_WAIT:
    error = check_event(contract, call);
    break;
  default:
    break;
  }
  bool has_stream = call->stream != NULL || contract->shim.head.kind == CGR_DEVICE_HOST;
  if (error != CGR__DEVICE_OK || !has_stream || !takes_stream(call->op))
    return error;
  return check_stream(contract, call);
}

static int before(struct cgr__shim *shim, const struct cgr__shim_call *call) {
  struct contract *contract = contract_of(shim);
  pthread_mutex_lock(&contract->shim.lock);
  int error = check(contract, call);
  pthread_mutex_unlock(&contract->shim.lock);
  return error;
}

/* ------------------------------------------------------------------------------------------- what a good call changes */

static void died(struct contract *contract, enum kind kind, const void *handle) {
  struct object *object = find(contract, kind, handle);
  if (object == NULL)
    return;
  if (kind == STREAM)
    raise_clock(&contract->seen, object->clock); /* it finished its work */
  object->alive = false;
}

static void note_events(struct contract *contract, const struct cgr__shim_call *call, struct object *stream) {
  struct object *event = find(contract, EVENT, call->object);
  if (event == NULL || stream == NULL)
    return;
  if (call->op == CGR__OP_EVENT_RECORD) {
    event->capture = stream->capture;
    if (event->clock != NULL && stream->clock != NULL)
      *event->clock = *stream->clock;
    return;
  }
  if (event->capture != 0 && stream->capture == 0) {
    stream->capture = event->capture;
    stream->origin = false;
  }
  if (event->capture == 0)
    raise_clock(stream->clock, event->clock);
}

static void note_launch(struct contract *contract, const struct cgr__shim_call *call, struct object *stream) {
  struct object *exec = find(contract, EXEC, call->object);
  if (exec == NULL || stream == NULL || stream->capture != 0)
    return;
  exec->slot = stream->slot;
  if (stream->slot < 0)
    return;
  exec->number = ++stream->clock->of[stream->slot];
}

static void note_capture_end(struct contract *contract, const struct cgr__shim_call *call, struct object *stream) {
  uint64_t capture = stream != NULL ? stream->capture : 0;
  for (struct object *o = contract->objects; capture != 0 && o != NULL; o = o->next) {
    if (o->kind == STREAM && o->capture == capture)
      o->capture = 0;
  }
  if (call->object != NULL)
    born(contract, GRAPH, call->object);
}

static void note_capture_begin(struct contract *contract, struct object *stream) {
  if (stream == NULL)
    return;
  stream->capture = ++contract->num_captures;
  stream->origin = true;
  stream->owner = pthread_self();
}

static void note(struct contract *contract, const struct cgr__shim_call *call) {
  struct object *stream = find(contract, STREAM, (const void *)call->stream);
  struct object *object;
  switch (call->op) {
  case CGR__OP_MEM_ALLOC:
    object = born(contract, MEMORY, call->object);
    if (object != NULL)
      object->memory_kind = call->kind;
    return;
  case CGR__OP_STREAM_CREATE:
    born(contract, STREAM, (const void *)call->stream);
    return;
  case CGR__OP_EVENT_CREATE:
    born(contract, EVENT, call->object);
    return;
  case CGR__OP_INSTANTIATE:
    born(contract, EXEC, call->object);
    return;
  case CGR__OP_MEM_FREE:
    died(contract, MEMORY, call->object);
    return;
  case CGR__OP_STREAM_DESTROY:
    died(contract, STREAM, (const void *)call->stream);
    return;
  case CGR__OP_EVENT_DESTROY:
    died(contract, EVENT, call->object);
    return;
  case CGR__OP_GRAPH_DESTROY:
    died(contract, GRAPH, call->object);
    return;
  case CGR__OP_EXEC_DESTROY:
    died(contract, EXEC, call->object);
    return;
  case CGR__OP_EVENT_RECORD:
  case CGR__OP_EVENT_WAIT:
    note_events(contract, call, stream);
    return;
  case CGR__OP_EXEC_LAUNCH:
    note_launch(contract, call, stream);
    return;
  case CGR__OP_CAPTURE_BEGIN:
    note_capture_begin(contract, stream);
    return;
  case CGR__OP_STREAM_SYNC:
  case CGR__OP_STREAM_QUERY:
    if (stream != NULL)
      raise_clock(&contract->seen, stream->clock);
    return;
  case CGR__OP_EVENT_SYNC:
  case CGR__OP_EVENT_QUERY:
    object = find(contract, EVENT, call->object);
    if (object != NULL)
      raise_clock(&contract->seen, object->clock);
    return;
  default:
    return;
  }
}

static void count_leaks(struct contract *contract) {
  for (const struct object *o = contract->objects; o != NULL; o = o->next) {
    contract->report->leaks += o->alive && !o->foreign;
    contract->report->leaks += o->kind == STREAM && o->alive && o->capture != 0 && o->origin;
  }
}

static int after(struct cgr__shim *shim, const struct cgr__shim_call *call, int error) {
  struct contract *contract = contract_of(shim);
  pthread_mutex_lock(&contract->shim.lock);
  /* A capture is over however it ended. */
  if (call->op == CGR__OP_CAPTURE_END)
    note_capture_end(contract, call, find(contract, STREAM, (const void *)call->stream));
  else if (call->op == CGR__OP_CLOSE)
    count_leaks(contract);
  else if (error == CGR__DEVICE_OK)
    note(contract, call);
  pthread_mutex_unlock(&contract->shim.lock);
  return error;
}

static void destroy(struct cgr__shim *shim) {
  struct contract *contract = contract_of(shim);
  while (contract->objects != NULL) {
    struct object *object = contract->objects;
    contract->objects = object->next;
    free(object->clock);
    free(object);
  }
}

static const cgr__shim_hooks hooks = { .before = before, .after = after, .destroy = destroy };

int cgr__contract_open(cgr_device *inner, struct cgr__contract_report *report, cgr_device **dev) {
  static const struct cgr__contract_report empty;
  struct cgr__shim *shim;
  int error = cgr__shim_open(sizeof(struct contract), inner, &hooks, &shim);
  *dev = error == CGR__DEVICE_OK ? &shim->head : NULL;
  if (error != CGR__DEVICE_OK)
    return error;
  *report = empty;
  contract_of(shim)->report = report;
  return CGR__DEVICE_OK;
}
