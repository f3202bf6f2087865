/* The validation layer: checks the rules of the table before the inner device sees a call, on any device. What breaks a rule is
 * refused and reported by name:
 *
 * - an event, waiter, graph, exec or memory that was not made here or is destroyed; a destroyed stream. Streams that were never
 * made here are refused over the host device, and taken as the engine's own over CUDA. (CUDA may give the address of a stream
 * that was destroyed here to a new one of the engine; that is then taken for the old one.)
 * - memory that is freed as the other kind, or by an address inside it; copies and fills beyond its end;
 * - memory that has been freed (freed.h), where a copy, a fill, the arguments of a launch or a parameter of a graph's nodes has
 * an address of it: when that is enqueued or instantiated, and at each launch of the graph. A stale address that is not used
 * counts, too;
 * - in capture: sync, query or destruction of a capturing stream; query or sync of a captured event; a wait outside for an event
 *   of a capture that is over; a second begin; an end without a begin, on a stream that joined, or by another thread; a graph
 *   launched into a capture; allocation, free or instantiation by a thread that captures. Unlike the device's own refusal, this
 *   one does not invalidate the capture: the device never hears of the call;
 * - whatever the device itself refuses as bad arguments or as breaking a rule of capture, but not how a capture ends: to end one
 *   that has failed, or that is given up half-way, is right;
 * - work that a function of the engine's enqueues in the capture of a step (`record`, a call, a backend's plan) on a stream that
 * is not in that capture: the graph would lack it. Other threads may enqueue what they like;
 * - a wait, an allocation, a free or a new stream in a function of the engine's in a step, captured or not: what a capture
 * refuses is named in the warm-up before it;
 * - at close: whatever is left, one by one.
 *
 * Runtimes over the layer check their callers, too, and report through it.
 *
 * A refusal is CGR__DEVICE_INVALID, or the code of the capture rule. It is reported without the layer's lock. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "devices/shims/calls.h"
#include "devices/shims/objects.h"
#include "devices/shims/shim.h"
#include "devices/shims/validation.h"

/* Why the last call of this thread was refused, for `explain`. */
static _Thread_local struct {
  const struct cgr__validation *layer; /* NULL: it was not refused */
  char text[200];
} refusal;

static _Thread_local int engine_depth; /* of the engine's functions in steps that this thread is in, over any device */

static struct cgr__validation *validation_of(struct cgr__shim *shim) { return (struct cgr__validation *)(void *)shim; }

/* --------------------------------------------------------------------------------------------------------- reporting */

void cgr__violation_describe(struct cgr__violation *violation, const struct cgr__shim_call *call, int error, int raw,
                             const char *format, ...) {
  int used = snprintf(violation->text, sizeof violation->text, "%s: ", cgr__call_name(call->op, call->kind));
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(violation->text + used, sizeof violation->text - (size_t)used, format, arguments);
  va_end(arguments);
  violation->error = error;
  violation->raw = raw;
}

static void call_back(const struct cgr__validation *layer, const char *text) {
  if (layer->on_violation)
    layer->on_violation(layer->context, text);
}

/* The last message gets the code of the violation besides its text; `told` is what the callback gets. */
static int refuse(struct cgr__validation *layer, const struct cgr__violation *violation, const char *told) {
  __atomic_store_n(&layer->shim.head.last_raw, violation->raw, __ATOMIC_RELAXED);
  refusal.layer = layer;
  memcpy(refusal.text, violation->text, sizeof refusal.text);
  call_back(layer, told);
  return violation->error;
}

/* Without the lock: the callback may take long, and other threads may go on. */
static int report_violation(struct cgr__validation *layer, const struct cgr__violation *violation) {
  return violation->error == CGR__DEVICE_OK ? CGR__DEVICE_OK : refuse(layer, violation, violation->text);
}

static void report_found(cgr_device *dev, const char *message) {
  call_back(validation_of((struct cgr__shim *)(void *)dev), message);
}

static void count_inside(cgr_device *dev, int change) {
  (void)dev;
  engine_depth += change;
}

static const char *explain_refusal(cgr_device *dev) {
  return (const void *)refusal.layer == (const void *)dev ? refusal.text : NULL;
}

/* ------------------------------------------------------------------------------------------------------------- checks */

/* The object behind a handle, which must be alive. False after describing the violation. */
static bool check_alive(struct cgr__validation *layer, const struct cgr__shim_call *call, enum cgr__object_kind kind,
                        const void *handle, struct cgr__object **object, struct cgr__violation *violation) {
  const char *name = cgr__object_kind_name(kind);
  *object = cgr__object_find(&layer->objects, kind, handle);
  if (*object && (*object)->state == CGR__OBJECT_ALIVE)
    return true;
  if (*object) {
    cgr__violation_describe(violation, call, CGR__DEVICE_INVALID, 400, "the %s has been %s", name,
                            kind == CGR__OBJECT_MEMORY ? "freed" : "destroyed");
    return false;
  }
  if (layer->objects.incomplete)
    return true;
  if (kind == CGR__OBJECT_STREAM && layer->shim.head.kind == CGR_DEVICE_KIND_CUDA) {
    *object = cgr__object_add(&layer->objects, kind, handle);
    if (*object)
      (*object)->foreign = true;
    return true;
  }
  cgr__violation_describe(violation, call, CGR__DEVICE_INVALID, 400, "the %s is not of this device", name);
  return false;
}

static void check_capture_end(struct cgr__validation *layer, const struct cgr__shim_call *call, const struct cgr__object *stream,
                              struct cgr__violation *violation) {
  const struct cgr__shim_capture *capture = cgr__shim_capture_find(&layer->objects, stream->capture);
  if (!capture && !layer->objects.incomplete)
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_INVALID, 401, "the stream does not capture");
  if (!capture)
    return; /* it may have begun when there was no memory for an entry: the device knows */
  if (capture->origin != stream->handle)
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_INVALID, 903, "the capture began on another stream");
  else if (!pthread_equal(capture->owner, pthread_self()))
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_INVALID, 908, "the capture was begun by another thread");
}

static bool is_work(enum cgr__shim_op op) {
  return (op >= CGR__OP_COPY && op <= CGR__OP_HOST_CALL) || op == CGR__OP_EXEC_LAUNCH || op == CGR__OP_EVENT_RECORD ||
         op == CGR__OP_EVENT_WAIT;
}

/* Whether the stream joins a capture by this wait. */
static bool joins_capture(const struct cgr__validation *layer, const struct cgr__shim_call *call) {
  const struct cgr__object *event =
      call->op == CGR__OP_EVENT_WAIT ? cgr__object_find(&layer->objects, CGR__OBJECT_EVENT, call->object) : NULL;
  return event && event->capture != 0;
}

/* Whether the device says that the stream captures: an engine may fork it by calls that the layer does not see. */
static bool captures_below(const struct cgr__validation *layer, cudaStream_t stream) {
  cgr_device *in = layer->shim.inner;
  int capturing = 0;
  return in->ops->capture_status(in, stream, &capturing) != CGR__DEVICE_OK || capturing;
}

static void check_stream_use(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation) {
  struct cgr__object *stream;
  if (!check_alive(layer, call, CGR__OBJECT_STREAM, (const void *)call->stream, &stream, violation) || !stream)
    return;
  if (engine_depth > 0 && is_work(call->op) && stream->capture == 0 && cgr__thread_captures(&layer->objects) &&
      !joins_capture(layer, call) && !captures_below(layer, call->stream)) {
    cgr__violation_describe(
        violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 900,
        "inside `record` of a capture, stream %p is not in the capture, expected the recorder's or one forked from it",
        (const void *)call->stream);
    return;
  }
  if (call->op == CGR__OP_CAPTURE_END) {
    check_capture_end(layer, call, stream, violation);
    return;
  }
  if (stream->capture == 0)
    return;
  switch (call->op) {
  case CGR__OP_STREAM_SYNC:
  case CGR__OP_STREAM_QUERY:
  case CGR__OP_STREAM_DESTROY:
  case CGR__OP_EXEC_LAUNCH:
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 900, "the stream captures");
    return;
  case CGR__OP_CAPTURE_BEGIN:
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 401, "the stream captures already");
    return;
  default:
    return;
  }
}

static void check_event(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation) {
  struct cgr__object *event;
  if (!check_alive(layer, call, CGR__OBJECT_EVENT, call->object, &event, violation) || !event || event->capture == 0)
    return;
  const struct cgr__object *stream = cgr__object_find(&layer->objects, CGR__OBJECT_STREAM, (const void *)call->stream);
  bool outside = stream && stream->capture == 0;
  if (call->op == CGR__OP_EVENT_QUERY || call->op == CGR__OP_EVENT_SYNC)
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 907, "the event was recorded in a capture");
  else if (call->op == CGR__OP_EVENT_WAIT && outside && !cgr__shim_capture_find(&layer->objects, event->capture))
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 907,
                            "the event was recorded in a capture that is over");
}

static void check_memory_free(struct cgr__validation *layer, const struct cgr__shim_call *call,
                              struct cgr__violation *violation) {
  struct cgr__object *memory;
  char text[160];
  if (cgr__objects_tell_inside(&layer->objects, layer->shim.inner, call->object, text, sizeof text)) {
    cgr__violation_describe(violation, call, CGR__DEVICE_INVALID, 1, "%s", text);
    return;
  }
  if (!call->object || !check_alive(layer, call, CGR__OBJECT_MEMORY, call->object, &memory, violation) || !memory)
    return;
  if (memory->memory_kind != call->kind)
    cgr__violation_describe(violation, call, CGR__DEVICE_INVALID, 1, "the memory is %s memory, which %s frees",
                            memory->memory_kind == CGR__MEMORY_PINNED ? "pinned" : "device",
                            cgr__call_name(CGR__OP_MEM_FREE, memory->memory_kind));
}

static bool takes_stream(enum cgr__shim_op op) {
  return (op >= CGR__OP_STREAM_DESTROY && op <= CGR__OP_STREAM_QUERY) || op == CGR__OP_EVENT_RECORD || op == CGR__OP_EVENT_WAIT ||
         (op >= CGR__OP_COPY && op <= CGR__OP_HOST_CALL) || (op >= CGR__OP_CAPTURE_BEGIN && op <= CGR__OP_CAPTURE_STATUS) ||
         op == CGR__OP_EXEC_LAUNCH;
}

/* What the call names besides a stream. */
static void check_object(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation) {
  struct cgr__object *object;
  switch (call->op) {
  case CGR__OP_MEM_FREE:
    check_memory_free(layer, call, violation);
    return;
  case CGR__OP_GRAPH_DESTROY:
  case CGR__OP_GRAPH_WALK:
    (void)check_alive(layer, call, CGR__OBJECT_GRAPH, call->object, &object, violation);
    return;
  case CGR__OP_INSTANTIATE:
    (void)check_alive(layer, call, CGR__OBJECT_GRAPH, call->input, &object, violation);
    return;
  case CGR__OP_EXEC_LAUNCH:
  case CGR__OP_EXEC_DESTROY:
    (void)check_alive(layer, call, CGR__OBJECT_EXEC, call->object, &object, violation);
    return;
  case CGR__OP_WAITER_DESTROY:
  case CGR__OP_WAITER_WAIT:
    (void)check_alive(layer, call, CGR__OBJECT_WAITER, call->object, &object, violation);
    return;
  case CGR__OP_EVENT_DESTROY:
  case CGR__OP_EVENT_QUERY:
  case CGR__OP_EVENT_SYNC:
  case CGR__OP_EVENT_RECORD:
  case CGR__OP_EVENT_WAIT:
    check_event(layer, call, violation);
    return;
  default:
    return;
  }
}

/* What `record` must not do, whether it is captured now or not. */
static void check_inside(const struct cgr__shim_call *call, struct cgr__violation *violation) {
  bool allocates = call->op == CGR__OP_MEM_ALLOC || call->op == CGR__OP_MEM_FREE || call->op == CGR__OP_STREAM_CREATE;
  if (engine_depth > 0 && (allocates || call->op == CGR__OP_STREAM_SYNC) && violation->error == CGR__DEVICE_OK)
    cgr__violation_describe(
        violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 900,
        "inside `record` or a call of a step, which must not %s, expected the call outside of it: captures refuse it",
        allocates ? "allocate or free" : "wait");
}

static void check_call(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation) {
  bool unsafe = call->op == CGR__OP_MEM_ALLOC || call->op == CGR__OP_MEM_FREE || call->op == CGR__OP_INSTANTIATE;
  if (unsafe && cgr__thread_captures(&layer->objects)) {
    cgr__violation_describe(violation, call, CGR__DEVICE_CAPTURE_ILLEGAL, 900, "the calling thread captures");
    return;
  }
  check_object(layer, call, violation);
  if (violation->error == CGR__DEVICE_OK && takes_stream(call->op))
    check_stream_use(layer, call, violation);
  if (violation->error == CGR__DEVICE_OK)
    cgr__check_memory_use(layer, call, violation);
  check_inside(call, violation);
}

/* ------------------------------------------------------------------------------------------- what a good call changes */

/* The object that a call destroys, or NULL. */
static struct cgr__object *object_of_destroy(struct cgr__validation *layer, const struct cgr__shim_call *call) {
  switch (call->op) {
  case CGR__OP_MEM_FREE:
    return cgr__object_find(&layer->objects, CGR__OBJECT_MEMORY, call->object);
  case CGR__OP_STREAM_DESTROY:
    return cgr__object_find(&layer->objects, CGR__OBJECT_STREAM, (const void *)call->stream);
  case CGR__OP_EVENT_DESTROY:
    return cgr__object_find(&layer->objects, CGR__OBJECT_EVENT, call->object);
  case CGR__OP_WAITER_DESTROY:
    return cgr__object_find(&layer->objects, CGR__OBJECT_WAITER, call->object);
  case CGR__OP_GRAPH_DESTROY:
    return cgr__object_find(&layer->objects, CGR__OBJECT_GRAPH, call->object);
  case CGR__OP_EXEC_DESTROY:
    return cgr__object_find(&layer->objects, CGR__OBJECT_EXEC, call->object);
  default:
    return NULL;
  }
}

static void note_event(struct cgr__validation *layer, const struct cgr__shim_call *call) {
  struct cgr__object *event = cgr__object_find(&layer->objects, CGR__OBJECT_EVENT, call->object);
  struct cgr__object *stream = cgr__object_find(&layer->objects, CGR__OBJECT_STREAM, (const void *)call->stream);
  if (!event || !stream)
    return;
  if (call->op == CGR__OP_EVENT_RECORD)
    event->capture = stream->capture;
  else if (stream->capture == 0)
    stream->capture = event->capture; /* the stream joins the capture */
}

static void note_memory(struct cgr__validation *layer, const struct cgr__shim_call *call) {
  struct cgr__object *memory = cgr__object_add(&layer->objects, CGR__OBJECT_MEMORY, call->object);
  if (!memory)
    return;
  memory->bytes = call->bytes;
  memory->memory_kind = call->kind;
  cgr__freed_hand_out(&layer->freed, call->object, call->bytes);
}

static void note_capture_begin(struct cgr__validation *layer, const struct cgr__shim_call *call) {
  struct cgr__object *stream = cgr__object_find(&layer->objects, CGR__OBJECT_STREAM, (const void *)call->stream);
  if (stream)
    cgr__shim_capture_add(&layer->objects, stream);
}

/* A capture is over however it ended. */
static void note_capture_end(struct cgr__validation *layer, const struct cgr__shim_call *call) {
  const struct cgr__object *stream = cgr__object_find(&layer->objects, CGR__OBJECT_STREAM, (const void *)call->stream);
  if (stream && stream->capture != 0)
    cgr__shim_capture_remove(&layer->objects, stream->capture);
  if (call->object)
    (void)cgr__object_add(&layer->objects, CGR__OBJECT_GRAPH, call->object);
}

static void note_exec(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__walked *walked, int error) {
  struct cgr__object *exec = error == CGR__DEVICE_OK ? cgr__object_add(&layer->objects, CGR__OBJECT_EXEC, call->object) : NULL;
  if (exec)
    exec->walked = walked;
  else
    cgr__walked_free(walked);
}

static void note_effect(struct cgr__validation *layer, const struct cgr__shim_call *call) {
  switch (call->op) {
  case CGR__OP_MEM_ALLOC:
    note_memory(layer, call);
    return;
  case CGR__OP_STREAM_CREATE:
    (void)cgr__object_add(&layer->objects, CGR__OBJECT_STREAM, (const void *)call->stream);
    return;
  case CGR__OP_EVENT_CREATE:
    (void)cgr__object_add(&layer->objects, CGR__OBJECT_EVENT, call->object);
    return;
  case CGR__OP_WAITER_CREATE:
    (void)cgr__object_add(&layer->objects, CGR__OBJECT_WAITER, call->object);
    return;
  case CGR__OP_EVENT_RECORD:
  case CGR__OP_EVENT_WAIT:
    note_event(layer, call);
    return;
  case CGR__OP_CAPTURE_BEGIN:
    note_capture_begin(layer, call);
    return;
  default:
    return;
  }
}

/* -------------------------------------------------------------------------------------------------------------- hooks */

static void tell_of_leak(const struct cgr__validation *layer, const struct cgr__object *o) {
  static const enum cgr__shim_op ends[] = {
    [CGR__OBJECT_MEMORY] = CGR__OP_MEM_FREE,     [CGR__OBJECT_STREAM] = CGR__OP_STREAM_DESTROY,
    [CGR__OBJECT_EVENT] = CGR__OP_EVENT_DESTROY, [CGR__OBJECT_GRAPH] = CGR__OP_GRAPH_DESTROY,
    [CGR__OBJECT_EXEC] = CGR__OP_EXEC_DESTROY,   [CGR__OBJECT_WAITER] = CGR__OP_WAITER_DESTROY
  };
  const char *close = cgr__call_name(CGR__OP_CLOSE, 0), *end = cgr__call_name(ends[o->kind], o->memory_kind);
  char text[160];
  if (o->kind == CGR__OBJECT_MEMORY)
    snprintf(text, sizeof text, "%s: %zu bytes of %s memory at %p have not been freed, expected %s first", close, o->bytes,
             o->memory_kind == CGR__MEMORY_PINNED ? "pinned" : "device", o->handle, end);
  else
    snprintf(text, sizeof text, "%s: %s %p has not been destroyed, expected %s first", close, cgr__object_kind_name(o->kind),
             o->handle, end);
  call_back(layer, text);
}

/* Reports everything that is left. No other thread is in a call, so no lock is held while it reports. */
static void tell_of_leaks(struct cgr__validation *layer) {
  char text[160];
  for (const struct cgr__shim_capture *c = layer->objects.captures; c; c = c->next) {
    snprintf(text, sizeof text, "%s: a capture on stream %p has not been ended", cgr__call_name(CGR__OP_CLOSE, 0), c->origin);
    call_back(layer, text);
  }
  for (size_t i = 0; i < CGR__OBJECT_BUCKETS; i++)
    for (const struct cgr__object *o = layer->objects.buckets[i]; o; o = o->next)
      if (o->state == CGR__OBJECT_ALIVE && !o->foreign)
        tell_of_leak(layer, o);
}

/* A graph's nodes are listed while nothing can happen to it: without the lock, since that takes long. */
static int list_graph_nodes(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation,
                            uint64_t *word) {
  int error;
  struct cgr__walked *walked = cgr__walked_make(layer->shim.inner, (cgr__graph *)(uintptr_t)call->input, &error);
  if (!walked)
    return error;
  pthread_mutex_lock(&layer->shim.lock);
  walked->made = UINT64_MAX; /* as for a launch: the address of a block that was given back may be in use again */
  walked->checked = UINT64_MAX;
  cgr__check_node_memory(layer, call, walked, violation);
  walked->made = layer->freed.frees;
  pthread_mutex_unlock(&layer->shim.lock);
  if (violation->error == CGR__DEVICE_OK)
    *word = (uint64_t)(uintptr_t)walked;
  else
    cgr__walked_free(walked);
  return CGR__DEVICE_OK;
}

/* An object that the call destroys leaves before the device releases its handle, since another thread may get the handle at once.
 */
static int before_call(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t *word) {
  struct cgr__validation *layer = validation_of(shim);
  struct cgr__violation violation = { .error = CGR__DEVICE_OK };
  int error = CGR__DEVICE_OK;
  refusal.layer = NULL;
  if (call->op == CGR__OP_CLOSE) {
    tell_of_leaks(layer);
    cgr__freed_give_back_all(&layer->freed, shim->inner);
    return CGR__DEVICE_OK;
  }
  pthread_mutex_lock(&shim->lock);
  check_call(layer, call, &violation);
  struct cgr__object *object = violation.error == CGR__DEVICE_OK ? object_of_destroy(layer, call) : NULL;
  if (object)
    object->state = CGR__OBJECT_LEAVING;
  pthread_mutex_unlock(&shim->lock);
  *word = (uint64_t)(uintptr_t)object;
  if (call->op == CGR__OP_INSTANTIATE && violation.error == CGR__DEVICE_OK)
    error = list_graph_nodes(layer, call, &violation, word);
  return error != CGR__DEVICE_OK ? error : report_violation(layer, &violation);
}

/* What the device itself refuses breaks a rule that only the device knows. */
static int report_refusal(struct cgr__validation *layer, const struct cgr__shim_call *call, int error) {
  static const struct {
    int raw;
    const char *why;
  } rules[] = {
    { 401, "the stream captures already, or does not capture" },
    { 900, "illegal while the stream or the calling thread captures" },
    { 901, "the capture was invalidated before" },
    { 902, "two captures would become one" },
    { 905, "a captured stream would wait for work outside of its capture" },
    { 906, "the call would depend on CUDA's legacy stream" },
    { 907, "the event was recorded in a capture" },
  };
  const int raw = __atomic_load_n(&layer->shim.head.last_raw, __ATOMIC_RELAXED);
  struct cgr__violation violation;
  char told[sizeof violation.text + 24];
  const char *why = "the device refuses its arguments";
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (rules[i].raw == raw)
      why = rules[i].why;
  cgr__violation_describe(&violation, call, error, raw, "%s", why);
  snprintf(told, sizeof told, "%s (code %d)", violation.text, raw);
  return refuse(layer, &violation, told);
}

static int after_call(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t word, int error) {
  struct cgr__validation *layer = validation_of(shim);
  struct cgr__object *object = call->op == CGR__OP_INSTANTIATE ? NULL : (struct cgr__object *)(uintptr_t)word;
  bool refused = error == CGR__DEVICE_INVALID || error == CGR__DEVICE_CAPTURE_ILLEGAL || error == CGR__DEVICE_CAPTURE_INVALID;
  pthread_mutex_lock(&shim->lock);
  if (object && object->state == CGR__OBJECT_LEAVING && cgr__device_did_nothing(error))
    object->state = CGR__OBJECT_ALIVE;
  else if (object && object->state == CGR__OBJECT_LEAVING)
    cgr__object_end(object);
  if (call->op == CGR__OP_INSTANTIATE)
    note_exec(layer, call, (struct cgr__walked *)(uintptr_t)word, error);
  else if (call->op == CGR__OP_CAPTURE_END)
    note_capture_end(layer, call);
  else if (error == CGR__DEVICE_OK)
    note_effect(layer, call);
  pthread_mutex_unlock(&shim->lock);
  if (!refused || call->op == CGR__OP_CAPTURE_END)
    return error;
  return report_refusal(layer, call, error);
}

static int mem_free(struct cgr__shim *shim, void *memory, enum cgr__memory_kind kind) {
  struct cgr__validation *layer = validation_of(shim);
  pthread_mutex_lock(&shim->lock);
  const struct cgr__object *object = memory ? cgr__object_find(&layer->objects, CGR__OBJECT_MEMORY, memory) : NULL;
  size_t bytes = object ? object->bytes : 0;
  pthread_mutex_unlock(&shim->lock);
  return bytes > 0 ? cgr__freed_free(&layer->freed, shim, memory, bytes, kind)
                   : shim->inner->ops->mem_free(shim->inner, memory, kind);
}

static void destroy_validation(struct cgr__shim *shim) { cgr__objects_free(&validation_of(shim)->objects); }

static const cgr__shim_hooks hooks = {
  .before = before_call, .after = after_call, .mem_free = mem_free, .destroy = destroy_validation
};

static int validation_open(cgr_device *inner, const cgr_device_config *config, cgr_device **dev) {
  struct cgr__shim *shim;
  *dev = NULL;
  if (inner->magic != CGR__DEVICE_MAGIC) /* of another version of the library */
    return CGR__DEVICE_UNSUPPORTED;
  int error = cgr__shim_open(sizeof(struct cgr__validation), inner, &hooks, &shim);
  if (error != CGR__DEVICE_OK)
    return error;
  shim->head.explain = explain_refusal;
  shim->head.report = report_found;
  shim->head.inside = count_inside;
  validation_of(shim)->on_violation = config->on_violation;
  validation_of(shim)->context = config->violation_context;
  *dev = &shim->head;
  return CGR__DEVICE_OK;
}

const cgr_device_layer *cgr_validation_layer(void) {
  static const cgr_device_layer layer = { .open = validation_open };
  return &layer;
}
