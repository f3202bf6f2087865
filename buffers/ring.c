#include "buffers/ring.h"

#include <string.h>

#include "base/status.h"

void cgr__ring_init(cgr__ring *ring, const cgr__layout *layout, int32_t depth, void *memory) {
  memset(memory, 0, layout->pinned_bytes);
  ring->completion = memory;
  ring->staging = (unsigned char *)memory + sizeof(cgr__completion);
  ring->readback = ring->staging + layout->slot.stride * depth;
  ring->slot = layout->slot;
  ring->readback_slot = layout->readback;
  ring->depth = (uint32_t)depth;
  ring->mask = (depth & (depth - 1)) == 0 ? ring->depth - 1 : 0;
  ring->stride = layout->slot.stride;
}

cgr_status cgr__ring_refuse(const cgr__ring *ring, const char *function, uint64_t seq) {
  return cgr__fail(CGR_ERROR_BUSY,
                   "%s: step %llu finds no free ring slot of %u, expected step %llu to be completed (cgr_step_wait)", function,
                   (unsigned long long)seq, ring->depth, (unsigned long long)(seq - ring->depth));
}
