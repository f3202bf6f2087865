/* The memory that a device has given out and not got back. A free of anything else is refused, instead of passed to an allocator
 * that would abort, or free memory of others. Any thread. */
#ifndef CGR_DEVICES_ALLOCATIONS_H
#define CGR_DEVICES_ALLOCATIONS_H

#include <pthread.h>

#include "devices/device.h"

struct cgr__allocation {
  uintptr_t address;
  size_t bytes;
  enum cgr__memory_kind kind;
  bool claimed; /* by a free under way */
};

struct cgr__allocations {
  pthread_mutex_t lock;
  struct cgr__allocation *sorted; /* by address */
  size_t count, capacity;
};

bool cgr__allocations_init(struct cgr__allocations *all);
void cgr__allocations_free(struct cgr__allocations *all); /* forgets; frees none of the memory */

/* False: there is no memory to remember it. */
bool cgr__allocations_add(struct cgr__allocations *all, const void *memory, size_t bytes, enum cgr__memory_kind kind);

/* The allocation that an address is in: NULL and 0 when there is none. */
void cgr__allocations_find(struct cgr__allocations *all, const void *address, const void **base, size_t *bytes);

/* Whether memory that begins in an allocation ends past it; `*left`: bytes from its beginning to the end of the allocation, which
 * has `*whole`. False: it fits, it is of another allocator, or `all` is NULL. */
bool cgr__allocations_is_short(struct cgr__allocations *all, const void *address, uint64_t bytes, size_t *left, size_t *whole);

/* Whether memory is there that a free as this kind would refuse, since it is of the other kind. */
bool cgr__allocations_is_other(struct cgr__allocations *all, const void *memory, enum cgr__memory_kind kind);

/* Claims memory for a free: false if it is not there, is of the other kind or is claimed. Afterwards cgr__allocations_end_free
 * says whether it was freed. If the allocator has given the address out again in between, the new allocation stays. */
bool cgr__allocations_claim(struct cgr__allocations *all, const void *memory, enum cgr__memory_kind kind);
void cgr__allocations_end_free(struct cgr__allocations *all, const void *memory, bool freed);

#endif
