/* The staging ring and the readback ring: pinned memory, `depth` slots each, slot = seq mod depth.
 *
 * The fence: slot of step s may be written once step s - depth has completed, which the device publishes in
 * completion->completed_seq. cgr__ring_acquire is the only way to a writable slot, and it checks the fence. */
#ifndef CGR_BUFFERS_RING_H
#define CGR_BUFFERS_RING_H

#include "buffers/layout.h"
#include "buffers/slot.h"

typedef struct cgr__ring {
  unsigned char *staging;
  unsigned char *readback;
  cgr__completion *completion;
  cgr__slot_layout slot;
  int64_t readback_stride;
  uint64_t depth;
} cgr__ring;

/* Lays the rings into `memory` (layout->pinned_bytes) and clears them. */
void cgr__ring_init(cgr__ring *ring, const cgr__layout *layout, int32_t depth, void *memory);

/* Number of the last completed step. Acquire: what that step wrote to the readback ring is visible afterwards. */
static inline uint64_t cgr__ring_completed(const cgr__ring *ring) {
  return __atomic_load_n(&ring->completion->completed_seq, __ATOMIC_ACQUIRE);
}

/* Steps so far that lost content. It may lag behind steps that have completed only if they were not asked for first. */
static inline uint64_t cgr__ring_generation(const cgr__ring *ring) {
  return __atomic_load_n(&ring->completion->generation, __ATOMIC_RELAXED);
}

/* The slot for step `seq`, or NULL while the step that used it before is in flight. */
cgr__slot_header *cgr__ring_acquire(const cgr__ring *ring, uint64_t seq);

static inline int32_t *cgr__ring_batch(const cgr__ring *ring, cgr__slot_header *slot) {
  return (int32_t *)((unsigned char *)slot + ring->slot.batch);
}
static inline int32_t *cgr__ring_tokens(const cgr__ring *ring, cgr__slot_header *slot) {
  return (int32_t *)((unsigned char *)slot + ring->slot.tokens);
}
static inline cgr__change *cgr__ring_changes(const cgr__ring *ring, cgr__slot_header *slot) {
  return (cgr__change *)((unsigned char *)slot + ring->slot.changes);
}

/* The result of a completed step; its tokens follow the record. */
const cgr__result_record *cgr__ring_result(const cgr__ring *ring, uint64_t seq);

#endif
