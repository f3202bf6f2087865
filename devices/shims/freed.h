/* What the validation layer knows of freed memory. It keeps the last blocks that were freed for a while, before the device gets
 * them back: nothing else can be at their addresses meanwhile, so any use of one is a mistake. Of larger blocks it remembers
 * where they were: a graph that is older than the free has the address from before. With the layer's lock held, unless it says
 * otherwise. */
#ifndef CGR_DEVICES_SHIMS_FREED_H
#define CGR_DEVICES_SHIMS_FREED_H

#include "devices/shims/shim.h"

enum { CGR__MAX_FREED = 256 };
#define CGR__MAX_KEPT_BYTES ((size_t)64 << 20)

struct cgr__freed_block {
  uintptr_t base;
  size_t bytes;
  enum cgr__memory_kind kind;
  bool kept;     /* not given back yet */
  uint64_t when; /* it was freed, in frees */
};

struct cgr__freed {
  struct cgr__freed_block block[CGR__MAX_FREED]; /* the oldest first */
  int32_t count;
  size_t kept_bytes;
  uint64_t frees; /* so far */
};

/* Frees memory of the shim's device: keeps it in place of the oldest blocks, which the inner device gets back, or remembers where
 * it was. Waits as a free does. Without the lock, which it takes. */
int cgr__freed_free(struct cgr__freed *freed, struct cgr__shim *shim, void *memory, size_t bytes, enum cgr__memory_kind kind);
/* The inner device gets back what has been kept. Before it closes: no other thread is in a call. */
void cgr__freed_give_back_all(struct cgr__freed *freed, cgr_device *inner);
/* The memory is handed out: what was there before is forgotten. */
void cgr__freed_hand_out(struct cgr__freed *freed, const void *base, size_t bytes);
/* The block with one of these bytes, if the address cannot come from a later allocation: the block is kept, or was freed after
 * `since`. NULL: there is none. */
const struct cgr__freed_block *cgr__freed_find(const struct cgr__freed *freed, uint64_t address, size_t bytes, uint64_t since);

/* The words of a graph's parameters, and what its nodes are called. */
struct cgr__walked {
  struct cgr__walked_word {
    uint64_t value;
    int64_t node;
  } * word; /* [count] */
  struct cgr__walked_name {
    char text[40];
  } * name; /* [num_nodes] */
  int64_t count, capacity, num_nodes, name_capacity;
  uint64_t made;    /* the frees before it */
  uint64_t checked; /* the frees before it was last found right */
};

/* NULL, with the error, without memory or if the device refuses the walk. */
struct cgr__walked *cgr__walked_make(cgr_device *inner, cgr__graph *graph, int *error);
void cgr__walked_free(struct cgr__walked *walked);
/* The first word that is in freed memory, whose block is *block; NULL: there is none. */
const struct cgr__walked_word *cgr__walked_find_freed(struct cgr__walked *walked, const struct cgr__freed *freed,
                                                      const struct cgr__freed_block **block);

#endif
