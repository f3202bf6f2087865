/* What the validation layer knows of each handle: whether it is made here and alive, and the capture it belongs to.
 * Entries outlive their objects, so that a later use is told from an unknown handle. With the layer's lock held. */
#ifndef CGR_DEVICES_SHIMS_OBJECTS_H
#define CGR_DEVICES_SHIMS_OBJECTS_H

#include <pthread.h>

#include "devices/device.h"
#include "devices/shims/freed.h"

enum cgr__object_kind {
  CGR__OBJECT_MEMORY,
  CGR__OBJECT_STREAM,
  CGR__OBJECT_EVENT,
  CGR__OBJECT_GRAPH,
  CGR__OBJECT_EXEC,
  CGR__OBJECT_WAITER
};

enum cgr__object_state {
  CGR__OBJECT_DESTROYED,
  CGR__OBJECT_ALIVE,
  CGR__OBJECT_LEAVING /* its destruction is under way; a new object that gets the handle meanwhile is alive again */
};

struct cgr__object {
  struct cgr__object *next; /* of its bucket */
  enum cgr__object_kind kind;
  const void *handle;
  enum cgr__object_state state;
  bool foreign;                      /* STREAM: the engine's own */
  size_t bytes;                      /* MEMORY */
  enum cgr__memory_kind memory_kind; /* MEMORY */
  uint64_t capture;                  /* STREAM: that it is in; EVENT: in which it was last recorded; 0: none */
  struct cgr__walked *walked;        /* EXEC: what its nodes hold; NULL: not known */
};

/* A capture that has not been ended. */
struct cgr__shim_capture {
  struct cgr__shim_capture *next;
  uint64_t id;
  const void *origin; /* the stream that it began on */
  pthread_t owner;
};

#define CGR__OBJECT_BUCKETS 4096u

struct cgr__objects {
  struct cgr__object *buckets[CGR__OBJECT_BUCKETS];
  struct cgr__shim_capture *captures;
  uint64_t num_captures;
  bool incomplete; /* there was no memory for an entry: from then on an unknown handle means nothing */
};

const char *cgr__object_kind_name(enum cgr__object_kind kind);

struct cgr__object *cgr__object_find(const struct cgr__objects *all, enum cgr__object_kind kind, const void *handle);
/* False, without a text, unless the address is inside memory that is alive, and not its beginning. */
bool cgr__objects_tell_inside(const struct cgr__objects *all, cgr_device *inner, const void *address, char *text, size_t size);
/* The same, unless the memory that the address is in ends before `bytes` more. */
bool cgr__objects_tell_overrun(const struct cgr__objects *all, cgr_device *inner, const void *address, size_t bytes, char *text,
                               size_t size);
/* The object no longer exists. */
void cgr__object_end(struct cgr__object *object);
/* A new object, or a new one with the handle of a destroyed one. NULL without memory. */
struct cgr__object *cgr__object_add(struct cgr__objects *all, enum cgr__object_kind kind, const void *handle);

struct cgr__shim_capture *cgr__shim_capture_find(const struct cgr__objects *all, uint64_t id);
bool cgr__thread_captures(const struct cgr__objects *all);
/* Begins one on a stream; without memory the stream counts as not capturing. */
void cgr__shim_capture_add(struct cgr__objects *all, struct cgr__object *stream);
/* Ends it, and releases its streams. */
void cgr__shim_capture_remove(struct cgr__objects *all, uint64_t id);

void cgr__objects_free(struct cgr__objects *all);

#endif
