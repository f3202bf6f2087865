#include "devices/shims/objects.h"

#include <stdio.h>
#include <stdlib.h>

const char *cgr__object_kind_name(enum cgr__object_kind kind) {
  static const char *const names[] = { "memory", "stream", "event", "graph", "executable graph", "waiter" };
  return names[kind];
}

/* Handles are addresses: their low bits say little. */
static size_t bucket_of(const void *handle) { return ((uintptr_t)handle >> 4 ^ (uintptr_t)handle >> 16) % CGR__OBJECT_BUCKETS; }

struct cgr__object *cgr__object_find(const struct cgr__objects *all, enum cgr__object_kind kind, const void *handle) {
  for (struct cgr__object *o = all->buckets[bucket_of(handle)]; o; o = o->next)
    if (o->kind == kind && o->handle == handle)
      return o;
  return NULL;
}

/* The living memory that an address is in, as the device below says. NULL: it is in none of these. */
static const struct cgr__object *memory_around(const struct cgr__objects *all, cgr_device *inner, const void *address) {
  const void *base = NULL;
  size_t bytes = 0;
  if (!address || !inner->ops->mem_find || inner->ops->mem_find(inner, address, &base, &bytes) != CGR__DEVICE_OK || !base)
    return NULL;
  const struct cgr__object *memory = cgr__object_find(all, CGR__OBJECT_MEMORY, base);
  return memory && memory->state == CGR__OBJECT_ALIVE ? memory : NULL;
}

static size_t offset_in(const struct cgr__object *memory, const void *address) {
  return (size_t)((uintptr_t)address - (uintptr_t)memory->handle);
}

static void tell_place(const struct cgr__object *memory, const void *address, char *text, size_t size) {
  snprintf(text, size, "%p, byte %zu of %zu bytes of %s memory at %p", address, offset_in(memory, address), memory->bytes,
           memory->memory_kind == CGR__MEMORY_PINNED ? "pinned" : "device", memory->handle);
}

bool cgr__objects_tell_inside(const struct cgr__objects *all, cgr_device *inner, const void *address, char *text, size_t size) {
  const struct cgr__object *memory = memory_around(all, inner, address);
  char place[128];
  if (!memory || memory->handle == address)
    return false;
  tell_place(memory, address, place, sizeof place);
  snprintf(text, size, "memory is %s, expected its beginning", place);
  return true;
}

bool cgr__objects_tell_overrun(const struct cgr__objects *all, cgr_device *inner, const void *address, size_t bytes, char *text,
                               size_t size) {
  const struct cgr__object *memory = memory_around(all, inner, address);
  char place[128];
  if (!memory || bytes <= memory->bytes - offset_in(memory, address))
    return false;
  tell_place(memory, address, place, sizeof place);
  snprintf(text, size, "%s, and bytes is %zu, expected at most %zu", place, bytes, memory->bytes - offset_in(memory, address));
  return true;
}

void cgr__object_end(struct cgr__object *object) {
  cgr__walked_free(object->walked);
  object->walked = NULL;
  object->state = CGR__OBJECT_DESTROYED;
}

struct cgr__object *cgr__object_add(struct cgr__objects *all, enum cgr__object_kind kind, const void *handle) {
  struct cgr__object *object = cgr__object_find(all, kind, handle);
  struct cgr__object **bucket = &all->buckets[bucket_of(handle)];
  if (!object) {
    object = calloc(1, sizeof *object);
    all->incomplete = all->incomplete || !object;
    if (!object)
      return NULL;
    object->next = *bucket;
    *bucket = object;
  }
  cgr__object_end(object);
  struct cgr__object fresh = { .next = object->next, .kind = kind, .handle = handle, .state = CGR__OBJECT_ALIVE };
  *object = fresh;
  return object;
}

struct cgr__shim_capture *cgr__shim_capture_find(const struct cgr__objects *all, uint64_t id) {
  for (struct cgr__shim_capture *c = all->captures; c; c = c->next)
    if (c->id == id)
      return c;
  return NULL;
}

bool cgr__thread_captures(const struct cgr__objects *all) {
  for (const struct cgr__shim_capture *c = all->captures; c; c = c->next)
    if (pthread_equal(c->owner, pthread_self()))
      return true;
  return false;
}

void cgr__shim_capture_add(struct cgr__objects *all, struct cgr__object *stream) {
  struct cgr__shim_capture *capture = calloc(1, sizeof *capture);
  all->incomplete = all->incomplete || !capture;
  if (!capture)
    return;
  capture->id = ++all->num_captures;
  capture->origin = stream->handle;
  capture->owner = pthread_self();
  capture->next = all->captures;
  all->captures = capture;
  stream->capture = capture->id;
}

void cgr__shim_capture_remove(struct cgr__objects *all, uint64_t id) {
  for (size_t i = 0; i < CGR__OBJECT_BUCKETS; i++)
    for (struct cgr__object *o = all->buckets[i]; o; o = o->next)
      if (o->kind == CGR__OBJECT_STREAM && o->capture == id)
        o->capture = 0;
  for (struct cgr__shim_capture **link = &all->captures; *link; link = &(*link)->next) {
    struct cgr__shim_capture *capture = *link;
    if (capture->id != id)
      continue;
    *link = capture->next;
    free(capture);
    return;
  }
}

void cgr__objects_free(struct cgr__objects *all) {
  for (size_t i = 0; i < CGR__OBJECT_BUCKETS; i++)
    while (all->buckets[i]) {
      struct cgr__object *object = all->buckets[i];
      all->buckets[i] = object->next;
      cgr__object_end(object);
      free(object);
    }
  while (all->captures) {
    struct cgr__shim_capture *capture = all->captures;
    all->captures = capture->next;
    free(capture);
  }
}
