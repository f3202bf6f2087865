/* The memory that calls use: it must not have been freed, and must not end before they do. */
#include <stdio.h>
#include <string.h>

#include "devices/shims/validation.h"

static void describe_freed(struct cgr__violation *violation, const struct cgr__shim_call *call, const char *what,
                           uint64_t address, const struct cgr__freed_block *block) {
  cgr__violation_describe(violation, call, CGR__DEVICE_INVALID, 1,
                          "%s is %#llx, in %zu bytes of %s memory at %#llx that have been freed", what,
                          (unsigned long long)address, block->bytes, block->kind == CGR__MEMORY_PINNED ? "pinned" : "device",
                          (unsigned long long)block->base);
}

/* Memory that is read or written from an address on. */
static void check_memory_range(struct cgr__validation *layer, const struct cgr__shim_call *call, const char *what,
                               const void *address, struct cgr__violation *violation) {
  char text[160];
  const struct cgr__freed_block *block = cgr__freed_find(&layer->freed, (uintptr_t)address, call->bytes, UINT64_MAX);
  if (violation->error != CGR__DEVICE_OK)
    return;
  if (block)
    describe_freed(violation, call, what, (uintptr_t)address, block);
  else if (cgr__objects_tell_overrun(&layer->objects, layer->shim.inner, address, call->bytes, text, sizeof text))
    cgr__violation_describe(violation, call, CGR__DEVICE_INVALID, 1, "%s is %s", what, text);
}

static void check_args(struct cgr__validation *layer, const struct cgr__shim_call *call, const char *name, size_t bytes,
                       struct cgr__violation *violation) {
  char what[64];
  for (size_t at = 0; call->args && at + sizeof(uint64_t) <= bytes && violation->error == CGR__DEVICE_OK;
       at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const unsigned char *)call->args + at, sizeof word);
    const struct cgr__freed_block *block = cgr__freed_find(&layer->freed, word, 1, UINT64_MAX);
    if (!block)
      continue;
    snprintf(what, sizeof what, "byte %zu of the arguments of %.30s", at, name);
    describe_freed(violation, call, what, word, block);
  }
}

void cgr__check_node_memory(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__walked *walked,
                            struct cgr__violation *violation) {
  char what[96];
  const struct cgr__freed_block *block = NULL;
  const struct cgr__walked_word *word = walked ? cgr__walked_find_freed(walked, &layer->freed, &block) : NULL;
  if (!word || violation->error != CGR__DEVICE_OK)
    return;
  snprintf(what, sizeof what, "a parameter of node %lld (%s)", (long long)word->node, walked->name[word->node].text);
  describe_freed(violation, call, what, word->value, block);
}

void cgr__check_memory_use(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation) {
  const struct cgr__object *exec;
  switch (call->op) {
  case CGR__OP_COPY:
    check_memory_range(layer, call, "dst", call->object, violation);
    check_memory_range(layer, call, "src", call->input, violation);
    return;
  case CGR__OP_FILL:
    check_memory_range(layer, call, "dst", call->object, violation);
    return;
  case CGR__OP_LAUNCH:
    check_args(layer, call, ((const cgr__kernel *)call->object)->name, ((const cgr__kernel *)call->object)->args_size, violation);
    return;
  case CGR__OP_HOST_CALL:
    check_args(layer, call, "a host function", call->bytes, violation);
    return;
  case CGR__OP_EXEC_LAUNCH:
    exec = cgr__object_find(&layer->objects, CGR__OBJECT_EXEC, call->object);
    cgr__check_node_memory(layer, call, exec ? exec->walked : NULL, violation);
    return;
  default:
    return;
  }
}
