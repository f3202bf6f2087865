/* What the files of the validation layer share: the layer, and what a check finds. */
#ifndef CGR_DEVICES_SHIMS_VALIDATION_H
#define CGR_DEVICES_SHIMS_VALIDATION_H

#include "devices/shims/calls.h"
#include "devices/shims/freed.h"
#include "devices/shims/objects.h"
#include "devices/shims/shim.h"

struct cgr__validation {
  struct cgr__shim shim;
  struct cgr__objects objects;
  struct cgr__freed freed;
  cgr_violation_function on_violation;
  void *context;
};

/* What a check has found: 0 and no text when the call is right. */
struct cgr__violation {
  int error, raw;
  char text[200];
};

/* Names the call, and says what is wrong with it. */
void cgr__violation_describe(struct cgr__violation *violation, const struct cgr__shim_call *call, int error, int raw,
                             const char *format, ...) __attribute__((format(printf, 5, 6)));

/* memory_use.c: what the call would have the device read or write, now or later; and the same of the nodes of a graph. */
void cgr__check_memory_use(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__violation *violation);
void cgr__check_node_memory(struct cgr__validation *layer, const struct cgr__shim_call *call, struct cgr__walked *walked,
                            struct cgr__violation *violation);

#endif
