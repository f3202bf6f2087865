#include "buffers/ring.h"

#include <string.h>

void cgr__ring_init(cgr__ring *ring, const cgr__layout *layout, int32_t depth, void *memory) {
  memset(memory, 0, layout->pinned_bytes);
  ring->completion = memory;
  ring->staging = (unsigned char *)memory + sizeof(cgr__completion);
  ring->readback = ring->staging + layout->slot.stride * depth;
  ring->slot = layout->slot;
  ring->readback_slot = layout->readback;
  ring->depth = (uint64_t)depth;
}

cgr__slot_header *cgr__ring_acquire(const cgr__ring *ring, uint64_t seq) {
  if (seq > ring->depth && cgr__ring_completed(ring) < seq - ring->depth)
    return NULL;
  return cgr__ring_slot(ring, seq);
}

const cgr__result_record *cgr__ring_result(const cgr__ring *ring, uint64_t seq) {
  return (const cgr__result_record *)(ring->readback + (int64_t)(seq % ring->depth) * ring->readback_slot.stride);
}
